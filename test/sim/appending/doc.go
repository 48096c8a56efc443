// Package appending tests outbox.Appender in virtual time, against the embedded database with
// lost responses, statements that time out and are decided later, and writers that die between
// their event and their rows.
//
// It relies on conditional statements of one partition being linearizable, on serial reads that
// decide open rounds, and on nothing about clocks but hours.
package appending
