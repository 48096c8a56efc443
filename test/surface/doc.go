// Package surface compares what users depend on with the files of testdata: the Go API of the
// modules that they import, the HTTP APIs, settings, metrics and tables. The commands are compared
// by cmd/outbox. A change of the surface is then a diff that a reviewer reads; CONTRIBUTING.md
// says what may change.
package surface
