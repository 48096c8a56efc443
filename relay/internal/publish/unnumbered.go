package publish

// Events of a table without numbers are identified by their ids alone. Their order is
// that of the log, by cdc$time, and the caller keeps it. In their lines, Next is the write
// time of the last row that was passed on. First is the newest write time of an event's first
// row, negative if an earlier process has published the event: a row that is stored again
// has the id of a published event and a later time, and says nothing of the order.

// noteTime records that the lane accepts an event without a number. It returns how much
// older than a published event it is, in microseconds, 0 if it is not.
func noteTime(l *lane, o *Offer) (late int64) {
	switch newest := max(l.line.First, -l.line.First); {
	case o.Written >= newest:
		l.line.First = o.Written
	case o.Written > 0:
		late = newest - o.Written
	}
	l.line.Next = max(l.line.Next, o.Written)
	return late
}

// noteRepeated records the write time of an event of the dedup index. If it is that of its first
// row and an earlier process has published it, as earlier reports, an older event accepted since
// the start was late: noteRepeated returns by how much, in microseconds.
func (c *cell) noteRepeated(o *Offer, earlier bool) (late int64) {
	l, _ := c.line(o.Event.AggregateID.UUID())
	if earlier && o.Written > max(l.First, -l.First) {
		if l.First > 0 {
			late = o.Written - l.First
		}
		l.First = -o.Written
	}
	l.Next = max(l.Next, o.Written)
	if l.Next > 0 {
		c.keepLine(o.Event.AggregateID.UUID(), l)
	}
	return late
}
