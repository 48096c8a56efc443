// Package swept determines why the sweep reader found an event before the tail reader.
//
// The tail reader records its activity in a Tracker, and the publisher asks the Tracker for
// the Cause. Tracker.mu may be taken while the lock of a publish.Publisher is held, and no
// other lock is taken while Tracker.mu is held.
package swept
