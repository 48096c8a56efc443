package publish

import (
	"sync/atomic"
	"time"
)

// recordClock shows by how much the clock that dates the records of this run is behind the
// clocks of the writers: a record is published after its event is created. It is safe for
// concurrent use.
type recordClock struct{ behind atomic.Int64 }

// published adds a record of an event.
func (c *recordClock) published(at, created time.Time) {
	for behind := int64(created.Sub(at)); ; {
		known := c.behind.Load()
		if behind <= known || c.behind.CompareAndSwap(known, behind) {
			return
		}
	}
}

// RecordClockBehind returns by how much a record of this run was dated before the creation of its
// event at most, by the clock of this host; 0 without such a record.
func (p *Publisher) RecordClockBehind() time.Duration {
	return time.Duration(p.recordClock.behind.Load())
}
