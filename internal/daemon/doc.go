// Package daemon contains the parts that every long-running command shares: signals,
// the logger, the admin HTTP server, and teardown in reverse order.
package daemon
