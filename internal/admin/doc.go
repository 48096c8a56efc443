// Package admin is the operators' HTTP API: dead letters, the relays that write them, and
// the history of single events.
//
// A Server describes itself at /openapi.json. Every error is a problem document
// (RFC 9457). Requests carry a bearer token, whose role decides what is allowed; there
// are no cookies. Each requested change is written to the audit trail before it is made,
// and its result afterwards. Like the command line, the API changes dead letters in the
// database; publishing is the relay's task.
package admin
