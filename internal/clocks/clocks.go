// Package clocks defines the clock of a process.
//
// Every process reads the clock of its host. Tests replace it by one that stands still or
// that is ahead of others, because hosts' clocks differ.
package clocks

import "time"

// Clock is the clock of a host. It is safe for concurrent use, and may be set back.
type Clock interface {
	// Now returns the current time.
	Now() time.Time
}

// System is the clock of this host.
type System struct{}

// Now returns time.Now.
func (System) Now() time.Time { return time.Now() }

// Or returns c, and System if c is nil.
func Or(c Clock) Clock {
	if c == nil {
		return System{}
	}
	return c
}
