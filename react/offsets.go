package react

import "github.com/twmb/franz-go/pkg/kgo"

// offsets are the records of a partition that were taken and not all settled. Called
// with the runner locked.
type offsets struct{ open []*place }

// place is a record's in its partition.
type place struct {
	next    kgo.EpochOffset // what is committed when all up to it is settled
	settled bool
}

// take adds a record, which comes after all before.
func (o *offsets) take(r *kgo.Record) *place {
	p := &place{next: kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}}
	o.open = append(o.open, p)
	return p
}

// settle says that nothing is left to do for a record. If that is so for all before
// too, it returns up to where.
func (o *offsets) settle(p *place) (next kgo.EpochOffset, moved bool) {
	p.settled = true
	n := 0
	for n < len(o.open) && o.open[n].settled {
		next = o.open[n].next
		n++
	}
	o.open = o.open[n:]
	return next, n > 0
}
