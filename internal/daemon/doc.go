// Package daemon is the plumbing that every long-running command shares:
// signals, the logger, the admin HTTP server, and teardown in reverse order.
package daemon
