// Package httpapi is the common part of the HTTP APIs of orders, messages and operators:
// listening, graceful shutdown, and problem documents (RFC 9457). Authentication is in
// package access.
package httpapi
