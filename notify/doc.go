// Package notify delivers notifications to people and programs: to chat, e-mail
// and pagers by their shoutrrr URL, to programs by a signed webhook, and to any
// Target written in Go.
//
// A Dispatcher has a queue and a goroutine for each target, so a target that is
// slow, hangs or fails does not affect the others, and Notify never blocks.
// Delivery is at least once during the life of the process: losses by a full
// queue or after the last attempt are counted and logged.
//
// The package is independent of outboxes, relays and dead letters.
//
// It is a part of the program, and may change in any version.
package notify
