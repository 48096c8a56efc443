// Package api is the HTTP API to dead letters, to the relays that make them, and
// to what became of single events.
//
// A Server describes itself at /openapi.json. Every error is a problem document
// (RFC 9457). Requests carry a bearer token, whose role decides; there are no
// cookies. Each change that is asked for stands in an audit before it is made and
// says afterwards what came of it. Like the command line, the API changes letters
// in the database and leaves the publishing to the relay.
package api
