package publish

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// Partition identifies a partition. Part is -1 while the number of partitions of the
// topic is unknown.
type Partition struct {
	Topic string
	Part  int32
}

// partState is the state of a partition. A partition is stalled if it acknowledges nothing for
// AttemptTimeout while the breaker is closed because others do. The relay then sends nothing more
// to it, so that its events do not fill the producer. The waiting events become dead letters after
// UsedUpAfter, or when half of the in-flight budget is used; it is then spilling. Records that the
// producer has stay there: the broker may have written them. When waiting events cannot become dead
// letters, and fill the budget, it is gated: they wait in the CDC log. An acknowledgement ends all of that,
// but a gated partition takes records again only when the producer has none of it: the relay then starts
// again, and a start that may not read topics would publish again the records without an answer.
type partState uint8

const (
	partTakes partState = iota
	partStalled
	partSpills
	partGated
)

// partition is a partition with outstanding records, waiting lanes or a probe.
type partition struct {
	state    partState
	creating bool      // the topic is being looked up or created
	open     int       // records with the producer
	bytes    int64     // size of these records
	since    time.Time // as StalledTopic.Since
	// waiting contains the lanes that decide again when the partition takes records, and when its
	// probe has ended.
	waiting map[*lane]struct{}
	// probe is a suspect that is sent alone, nil if there is none. A refusal fails everything
	// buffered for the partition, so only an event sent alone gets an answer of its own. Until
	// then nothing else is sent to the partition; other partitions continue. suspects are sent
	// after it, one after the other.
	probe    *lane
	suspects []*lane
}

// StalledTopic describes a partition that acknowledges nothing while others do.
type StalledTopic struct {
	Topic string
	// Partition is -1 if the topic could not be looked up or created.
	Partition int32
	// Since is the time of its last acknowledgement, or of its first record without one.
	Since time.Time
	// Records is the number of records that the producer keeps, Aggregates the number
	// of aggregates that wait.
	Records, Aggregates int
	// Holding means that events for this partition wait in the CDC log: the number of spilled dead
	// letters has reached Config.SpillLimit, or the events have no numbers.
	Holding bool
}

// partitions contains the partitions that are in use.
type partitions struct {
	cfg *Config
	of  map[Partition]*partition
	// stuck counts the records of stalled partitions in the producer.
	stuck struct {
		open  int
		bytes int64
	}
}

// init prepares an empty set.
func (ps *partitions) init(cfg *Config) { ps.cfg, ps.of = cfg, make(map[Partition]*partition) }

// errStalled ends a replay before its event was sent.
var errStalled = errors.New("its partition is stalled")

// stalled returns the stalled partitions, sorted by topic and partition.
func (ps *partitions) stalled() []StalledTopic {
	var out []StalledTopic
	for key, p := range ps.of {
		if p.state != partTakes {
			out = append(out, StalledTopic{
				Topic: key.Topic, Partition: key.Part, Since: p.since, Records: p.open, Aggregates: len(p.waiting), Holding: p.state == partGated,
			})
		}
	}
	slices.SortFunc(out, func(a, b StalledTopic) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

// look sets the part of a lane's view that describes its partition.
func (ps *partitions) look(v *view, l *lane, now time.Time) {
	p := ps.of[v.part]
	if p == nil {
		return
	}
	v.full, v.busy = ps.isFull(p), p.open > 0
	if p.state == partSpills {
		v.silent = now.Sub(p.since)
	}
	switch p.probe {
	case nil:
	case l:
		v.probe = ownProbe
	default:
		v.probe = otherProbe
	}
}

// await adds the lane to the lanes that wait for the partition.
func (p *partition) await(l *lane) {
	if p.waiting == nil {
		p.waiting = make(map[*lane]struct{})
	}
	p.waiting[l] = struct{}{}
}

// wait makes the lane decide again when the partition takes records, or when its probe has ended.
// It returns false if that is so already.
func (ps *partitions) wait(key Partition, l *lane, why reason) bool {
	p := ps.of[key]
	switch {
	case p == nil || why == forPartition && !ps.isFull(p) || why == forProbe && p.probe == nil:
		return false
	case why == forPartition || l.state != laneSuspect:
		p.await(l)
	case p.probe != l && !slices.Contains(p.suspects, l): // the last record to return pumps the probe
		p.suspects = append(p.suspects, l)
	}
	return true
}

// isFull reports whether the partition takes no further record now: it is stalled, or uses
// its full share of the in-flight budget. The share is 2/(n+1), where n is the number of partitions
// in use or 2, whichever is larger. Records of stalled partitions stay with the producer, so the
// share is taken of the rest: a partition without a leader never uses the whole budget.
func (ps *partitions) isFull(p *partition) bool {
	parts := max(2, len(ps.of)) + 1
	return p.state != partTakes || p.open >= max(1, 2*(ps.cfg.MaxInFlightRecords-ps.stuck.open)/parts) ||
		p.open > 0 && p.bytes >= 2*(ps.cfg.MaxInFlightBytes-ps.stuck.bytes)/int64(parts)
}

// get returns the partition and adds it if it is not in use.
func (ps *partitions) get(key Partition, now time.Time) *partition {
	p := ps.of[key]
	if p == nil {
		p = &partition{since: now}
		ps.of[key] = p
	}
	return p
}

// drop removes a partition that is no longer in use.
func (ps *partitions) drop(key Partition, p *partition) {
	if p.open == 0 && !p.creating && p.probe == nil {
		delete(ps.of, key)
	}
}

// begin counts the item as outstanding on its partition.
func (ps *partitions) begin(it *item) {
	p := ps.get(it.part, it.sentAt)
	it.in = p // it is kept while the record is outstanding
	if p.open == 0 && !p.creating {
		p.since = it.sentAt
	}
	ps.count(p, 1, it.bytes)
}

// count changes the number and size of a partition's records with the producer.
func (ps *partitions) count(p *partition, records int, bytes int64) {
	p.open += records
	p.bytes += bytes
	if p.state != partTakes {
		ps.stuck.open += records
		ps.stuck.bytes += bytes
	}
}

// resumption is the end of a trouble of a partition.
type resumption struct {
	lanes                map[*lane]struct{} // they no longer have to wait
	probe                *lane              // it may be sent, because nothing else is outstanding
	wasStalled, wasGated bool               // the partition was stalled, or gated too
}

// resume returns the lanes that waited for the partition, and ends its trouble.
func (ps *partitions) resume(p *partition) resumption {
	if p.state != partTakes {
		ps.stuck.open -= p.open
		ps.stuck.bytes -= p.bytes
	}
	r := resumption{lanes: p.waiting, wasStalled: p.state != partTakes, wasGated: p.state == partGated}
	p.state, p.waiting = partTakes, nil
	return r
}

// end removes a record that returned now from its partition.
func (ps *partitions) end(it *item, acked bool, now time.Time) (r resumption) {
	p := it.in
	it.in = nil
	ps.count(p, -1, -it.bytes)
	if acked {
		p.since = now
	}
	switch {
	case p.state == partGated && p.open > 0: // the restart that follows might repeat the others
	case p.state != partTakes && (acked || p.open == 0), p.state == partTakes && p.probe == nil && len(p.waiting) > 0 && (p.open == 0 || !ps.isFull(p)):
		r = ps.resume(p)
	}
	if p.open == 0 {
		r.probe = p.probe
	}
	ps.drop(it.part, p)
	return r
}

// create makes the lane wait for the creation of a topic, and reports whether that begins now.
func (ps *partitions) create(key Partition, l *lane, now time.Time) (begins bool) {
	p := ps.get(key, now)
	p.await(l)
	begins, p.creating = !p.creating, true
	return begins
}

// created ends the creation of a topic.
func (ps *partitions) created(key Partition) resumption {
	p := ps.of[key]
	p.creating = false
	ps.drop(key, p)
	return ps.resume(p)
}

// beginProbe makes the lane, which is a suspect, the probe of a partition without one.
func (ps *partitions) beginProbe(key Partition, l *lane, now time.Time) {
	ps.get(key, now).probe = l
	l.probed = key
}

// endProbe ends the probe if its lane is l. It returns the lanes that decide again: the first that
// is still a suspect becomes the next probe, and the rest wait for it.
func (ps *partitions) endProbe(l *lane) (next []*lane) {
	p := ps.of[l.probed]
	if p == nil || p.probe != l {
		return nil
	}
	next = p.suspects
	delete(p.waiting, l) // the caller continues it
	for w := range p.waiting {
		next = append(next, w)
	}
	p.probe, p.suspects, p.waiting = nil, nil, nil
	ps.drop(l.probed, p)
	return next
}

// counts returns the number of partitions in use, and of those with outstanding records.
func (ps *partitions) counts() (used, busy int) {
	for _, p := range ps.of {
		if p.open > 0 {
			busy++
		}
	}
	return len(ps.of), busy
}

// stall marks partitions without an acknowledgement since AttemptTimeout as stalled. It returns
// these, the suspects that wait for their turn or the records before them, and how long each stalled partition that is not
// gated is silent.
func (ps *partitions) stall(now time.Time) (stalls []StalledTopic, suspects []*lane, silent map[Partition]time.Duration) {
	silent = make(map[Partition]time.Duration)
	ps.stuck.open, ps.stuck.bytes = 0, 0
	for key, p := range ps.of {
		if p.state == partTakes && (p.open > 0 || p.creating) && now.Sub(p.since) >= ps.cfg.AttemptTimeout {
			p.state = partStalled
			stalls = append(stalls, StalledTopic{Topic: key.Topic, Partition: key.Part, Since: p.since, Records: p.open})
			if p.probe != nil {
				suspects = append(suspects, p.probe)
			}
			suspects, p.suspects = append(suspects, p.suspects...), nil
		}
		switch p.state {
		case partTakes:
			continue
		case partSpills:
			p.state = partStalled // until set
		}
		if p.state == partStalled {
			silent[key] = now.Sub(p.since)
		}
		ps.stuck.open += p.open
		ps.stuck.bytes += p.bytes
	}
	return stalls, suspects, silent
}

// set changes the state of a stalled partition. It returns the lanes that waited for it, which
// decide again.
func (ps *partitions) set(key Partition, to partState) map[*lane]struct{} {
	p := ps.of[key]
	p.state = to
	waiting := p.waiting
	p.waiting = nil
	return waiting
}
