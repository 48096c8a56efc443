// Package expr compiles and evaluates the expressions of CQL data statements: terms
// (constants, bind markers, functions), relations and restrictions of a WHERE clause,
// selectors and aggregates.
//
// A [Compiler] belongs to one statement. It checks expressions against the schema, with
// ScyllaDB's errors, and records the types of bind markers. An [EvalCtx] belongs to one
// execution: it contains the bound values, the time and the state of aggregates. A
// [RowView] is the row on which selectors, filters and conditions are evaluated.
//
// The package reads and writes no storage and plans no statements; package engine does.
package expr
