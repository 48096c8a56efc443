package readback

import "time"

const (
	// checkRecords is the number of records before the time from which a partition is read:
	// their times show whether the clock that dates records is behind.
	checkRecords = 100
	// maxBehind is the most by which a record clock is believed to be behind.
	maxBehind = 24 * time.Hour
)

// clockOffset is the least difference between the time of a record, by the clock of a broker
// or of a relay, and the creation of its event, by the clock of its writer. A record is
// published after its event is created, so a negative difference is that of the clocks.
type clockOffset struct {
	least time.Duration
	known bool // of one record at least
}

// observe adds a record: its time in milliseconds, and the creation of its event. It ignores
// a record without one of them. It returns by how much the record is dated before that.
func (c *clockOffset) observe(at int64, created []byte) (early time.Duration) {
	var t time.Time
	if at > 0 && len(created) > 0 && t.UnmarshalText(created) == nil {
		early = t.Sub(time.UnixMilli(at))
		c.add(clockOffset{-early, true})
	}
	return early
}

// add adds what other records show.
func (c *clockOffset) add(o clockOffset) {
	if o.known && (!c.known || o.least < c.least) {
		*c = o
	}
}

// behind returns by how much the record clock is behind, at most maxBehind; 0 if it is not.
func (c *clockOffset) behind() time.Duration { return min(max(-c.least, 0), maxBehind) }

// covering returns the margin that covers the record clock, at least margin: it grows only if
// the clock is behind by more than the given one, and then by margin more.
func (c *clockOffset) covering(given, margin time.Duration) time.Duration {
	if behind := c.behind(); behind > given {
		return behind + margin
	}
	return given
}
