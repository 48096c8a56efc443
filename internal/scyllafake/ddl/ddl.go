// Package ddl applies schema statements: it validates them, builds the next
// catalog.Schema, and keeps system_schema in step.
package ddl
