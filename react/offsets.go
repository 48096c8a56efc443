package react

import "github.com/twmb/franz-go/pkg/kgo"

// offsets are the records of a partition that were taken and are not settled.
// Called with the runner locked.
type offsets struct{ open []*place }

// place is the position of a record in its partition.
type place struct {
	next    kgo.EpochOffset // committed when every record up to it is settled
	settled bool
}

// take adds a record, which follows all others.
func (o *offsets) take(r *kgo.Record) *place {
	p := &place{next: kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}}
	o.open = append(o.open, p)
	return p
}

// settle marks a record as finished. If all records before it are finished,
// too, it returns the offset to commit.
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
