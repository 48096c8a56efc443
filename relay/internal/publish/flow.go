package publish

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"
)

// Partition identifies a partition. Part is -1 while the number of partitions of the
// topic is unknown.
type Partition struct {
	Topic string
	Part  int32
}

// partFlow is the state of a partition with outstanding records or waiting events. A
// partition is stalled if it acknowledges nothing for AttemptTimeout while the breaker is
// closed because others do. The relay then sends nothing more to it, so that its events
// do not fill the producer. The waiting events become dead letters after
// UsedUpAfter, or when half of the in-flight budget is used; those that cannot then wait in the
// log. Records that the producer has stay there: the broker may have written them.
type partFlow struct {
	open  int       // records with the producer
	bytes int64     // size of these records
	since time.Time // as StalledTopic.Since
	// stalled: the partition acknowledges nothing. creating: the topic is being looked
	// up or created.
	stalled, creating bool
	// gated means that waiting events cannot become dead letters and fill the budget: they wait in
	// the CDC log.
	gated   bool
	waiting map[*lane]struct{}
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

// flows contains the partitions with outstanding records or waiting events. Publisher.mu
// guards it, and so does a single stripe together with hot, which look, wait, begin and end take.
type flows struct {
	cfg *Config
	hot sync.Mutex
	of  map[Partition]*partFlow
	// stuck counts the records of stalled partitions in the producer.
	stuck struct {
		open  int
		bytes int64
	}
}

// init prepares empty flows.
func (f *flows) init(cfg *Config) { f.cfg, f.of = cfg, make(map[Partition]*partFlow) }

// stalled returns the stalled partitions, sorted by topic and partition.
func (f *flows) stalled() []StalledTopic {
	var out []StalledTopic
	for key, pf := range f.of {
		if pf.stalled {
			out = append(out, StalledTopic{
				Topic: key.Topic, Partition: key.Part, Since: pf.since, Records: pf.open, Aggregates: len(pf.waiting), Holding: pf.gated,
			})
		}
	}
	slices.SortFunc(out, func(a, b StalledTopic) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

// errStalled ends a replay before its event was sent.
var errStalled = errors.New("its partition is stalled")

// look reports whether the partition takes no further record now, because it is stalled or the
// producer has its full share, and whether records of it are outstanding.
func (f *flows) look(key Partition) (full, busy bool) {
	f.hot.Lock()
	defer f.hot.Unlock()
	pf := f.of[key]
	return f.isFull(pf), pf != nil && pf.open > 0
}

// wait makes the lane decide again when the partition takes records. It returns false if it does.
func (f *flows) wait(key Partition, l *lane) bool {
	f.hot.Lock()
	defer f.hot.Unlock()
	pf := f.of[key]
	if !f.isFull(pf) {
		return false
	}
	pf.waiting[l] = struct{}{}
	return true
}

func (f *flows) isFull(pf *partFlow) bool { return pf != nil && (pf.stalled || f.hasShare(pf)) }

// hasShare reports whether the partition uses its full share of the in-flight budget. The
// share is 2/(n+1), where n is the number of partitions with flows or 2, whichever is
// larger. Records of stalled partitions stay with the producer, so the share is taken of
// the rest: a partition without a leader never uses the whole budget. Lanes of different
// stripes that send at the same time may exceed it by a record each.
func (f *flows) hasShare(pf *partFlow) bool {
	parts := max(2, len(f.of)) + 1
	return pf.open >= max(1, 2*(f.cfg.MaxInFlightRecords-f.stuck.open)/parts) ||
		pf.open > 0 && pf.bytes >= 2*(f.cfg.MaxInFlightBytes-f.stuck.bytes)/int64(parts)
}

// begin counts the item as outstanding on its partition.
func (f *flows) begin(it *item) {
	f.hot.Lock()
	defer f.hot.Unlock()
	pf := f.get(it.part)
	pf.open++
	pf.bytes += it.bytes
}

// get returns the partition's flow and creates it if there is none.
func (f *flows) get(key Partition) *partFlow {
	pf := f.of[key]
	if pf == nil {
		pf = &partFlow{since: time.Now(), waiting: make(map[*lane]struct{})}
		f.of[key] = pf
	}
	return pf
}

// created ends the creation of a topic, and returns the lanes that waited for it, and whether its
// partitions were gated.
func (f *flows) created(key Partition) (waiting map[*lane]struct{}, wasGated bool) {
	pf := f.of[key]
	waiting, wasGated = pf.waiting, pf.gated
	pf.waiting, pf.creating, pf.stalled, pf.gated = make(map[*lane]struct{}), false, false, false
	if pf.open == 0 {
		delete(f.of, key)
	}
	return waiting, wasGated
}

// end removes a record that returned now from its flow. It reports whether it was the last
// outstanding one, returns the lanes that no longer have to wait for the partition, and
// whether the partition was stalled, or gated too, until now.
func (f *flows) end(it *item, acked bool, now time.Time) (last bool, resumed map[*lane]struct{}, wasStalled, wasGated bool) {
	f.hot.Lock()
	defer f.hot.Unlock()
	pf := f.of[it.part]
	pf.open--
	pf.bytes -= it.bytes
	if acked {
		pf.since = now
	}
	switch {
	case pf.stalled && (acked || pf.open == 0), !pf.stalled && len(pf.waiting) > 0 && (pf.open == 0 || !f.hasShare(pf)):
		wasStalled, wasGated, pf.stalled, pf.gated = pf.stalled, pf.gated, false, false
		resumed, pf.waiting = pf.waiting, make(map[*lane]struct{})
	}
	if last = pf.open == 0; last && !pf.creating {
		delete(f.of, it.part)
	}
	return last, resumed, wasStalled, wasGated
}

// busy returns the number of partitions with outstanding records.
func (f *flows) busy() (n int) {
	for _, pf := range f.of {
		if pf.open > 0 {
			n++
		}
	}
	return n
}
