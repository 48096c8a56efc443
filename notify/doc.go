// Package notify carries notifications to people and programs: chat, e-mail and
// pagers by their shoutrrr URL, programs by a signed webhook, and anything else
// by a Target written in Go.
//
// A Dispatcher gives each target a queue and a goroutine of its own, so that a
// target that is slow, hangs or is gone costs the others nothing, and whoever
// notifies never waits. Delivery is at least once for as long as the process
// lives: what a full queue or the last attempt loses is counted and logged.
//
// The package knows nothing of outboxes, relays and dead letters.
package notify
