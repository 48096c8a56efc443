// Package httpapi is what the HTTP APIs of orders, messages and operators have in
// common: how they listen and stop, and what their problem documents (RFC 9457) are
// made of. Who may come in is package access.
package httpapi
