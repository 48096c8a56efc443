// Package promtool pins the promtool that tests the alert rules, and reads the
// dashboard's queries by the parser that it has.
package promtool
