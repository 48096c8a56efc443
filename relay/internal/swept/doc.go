// Package swept determines why the sweep reader found an event before the tail reader.
//
// It relies on the times of rows and of this host agreeing. If they do not, an event is counted
// with another cause; nothing else depends on it.
//
// The tail reader records its activity in a Tracker, and the publisher asks the Tracker for
// the Cause. No other lock is taken while Tracker.mu is held.
package swept
