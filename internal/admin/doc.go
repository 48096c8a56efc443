// Package admin is the operators' HTTP API: dead letters, the relays that write them, and
// the history of single events.
//
// A Server describes itself at /openapi.json. Every error is a problem document
// (RFC 9457). Requests carry a bearer token, or the session of a user of the console in a
// cookie (package access); its role decides what is allowed. Each requested change is written
// to the audit trail before it is made, and its result afterwards. The API changes
// dead letters in the database; publishing is the relay's task.
//
// The exported types with the suffix Body, and the types of their members, are the bodies of
// requests and responses. Package adminclient sends and receives them; the command line
// uses it, also to call a Server in its own process.
package admin
