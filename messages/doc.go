// Package messages takes messages for a topic of the caller's choice over HTTP
// and stores each in the outbox, or in the schedule if it is for later, in one
// write. The relay publishes them like every other event.
//
// It is for programs that have no table of their own to write beside the event;
// those that do use outbox.Append, which stores both or neither.
package messages
