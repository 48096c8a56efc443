package publish

// Events of a table without numbers are identified by their ids alone. Their order is
// that of the log, by cdc$time, and the caller keeps it. In their lines, next is the write
// time of the last one.

// noteTime records that the lane accepts an event without a number. It returns how much
// older than the last accepted event it is, in microseconds, 0 if it is not.
func noteTime(l *lane, o *Offer) (late int64) {
	if o.Written > 0 && o.Written < l.line.Next {
		late = l.line.Next - o.Written
	}
	l.line.Next = max(l.line.Next, o.Written)
	return late
}

// noteRepeated records the write time of an event of the dedup index: it was published by this
// process or an earlier one: after a start nothing else is known of its aggregate. An
// older event accepted since the start was late; noteRepeated returns by how much, in
// microseconds.
func (s *stripe) noteRepeated(o *Offer) (late int64) {
	if o.Written == 0 {
		return 0
	}
	l, _ := s.line(o.Event.AggregateID)
	if o.Written <= l.Next {
		return 0
	}
	if l.Next > 0 {
		late = o.Written - l.Next
	}
	l.Next = o.Written
	if lane, ok := s.lanes[o.Event.AggregateID]; ok {
		lane.line = l
	} else {
		s.lines.Keep(o.Event.AggregateID, l)
	}
	return late
}
