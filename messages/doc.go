// Package messages accepts messages for any allowed topic over HTTP. It stores
// each in one write: in the outbox or, if it is for later, in the schedule. The
// relay publishes them like every other event.
//
// It is for programs without a table of their own to write beside the event.
// Programs with one use outbox.Append, which stores both or neither.
//
// It is a part of the program, and may change in any version.
package messages
