package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

// keep is the TTL of the simulated tables and their log, longer than any simulation.
const keep = 30 * 24 * time.Hour

// eventMemory is the part of relay.Config.DedupMemory that an event needs.
const eventMemory = 36

// settings configures the system for the plan.
func (p *plan) settings(s *settings) {
	if !p.Tablets {
		onVnodes(s)
	}
	s.node.Shards = p.Shards
	if !p.Tail {
		s.relay.Tail = relay.TailOff
	}
	if !p.ReadBack {
		s.relay.ReadBackMargin = -1
	}
	s.hints, s.denied = p.Hints, p.Denied
	s.brokerTime, s.brokers, s.descending, s.hostAhead = p.BrokerTime, p.Brokers, p.Descending, p.HostAhead.std()
	s.relay.ConfidenceWindow = p.Window.std()
	s.relay.TailMaxInterval, s.relay.IdleDelay = p.Pace.std(), p.Pace.std()
	s.relay.GenerationDelay = min(2*p.Pace.std(), time.Minute)
	s.relay.IdleCheckpoint = max(relay.Defaults().IdleCheckpoint, 2*p.Pace.std())
	// Otherwise an outage of days would cause thousands of probes, each of which reads
	// the longer history of its dead letter.
	s.relay.BreakerOpen = max(relay.Defaults().BreakerOpen, p.Pace.std())
	s.relay.MaxInFlightRecords, s.relay.MaxStreamBacklog, s.relay.MaxAggregates = p.InFlight, p.Backlog, p.Aggregates
	s.schema.CDCTTL, s.schema.RowTTL, s.schema.IdempotencyTTL = cmp.Or(p.LogTTL.std(), keep), keep, keep
	s.relay.DedupMemory = int64(p.Remembered) * eventMemory
	s.relay.MaxRecordBytes, s.relay.SpillLimit = tooLarge/2, p.SpillLimit
	for _, d := range p.Skews {
		s.skews = append(s.skews, d.std())
	}
	skew := p.NodeSkew.std()
	s.node.Now = func() time.Time { return time.Now().Add(skew) }
}

// carryOut runs the plan: each change as soon as the previous ones allow.
func (p *plan) carryOut(w *world) {
	rnd := rand.New(rand.NewPCG(p.Seed, 'a'))
	if p.Verifier {
		w.startVerifier(max(30*time.Minute, p.Span.std()/6))
	}
	w.customersAt(p.arrivals(rnd, p.Customers))
	w.parcelsAt(p.arrivals(rnd, p.Parcels))
	w.rewrite(rand.New(rand.NewPCG(p.Seed, 'r')), p.Rewrites, p.Span.std())
	type change struct {
		at time.Duration
		do func()
	}
	var changes []change
	for _, e := range p.Episodes {
		end := func() {}
		changes = append(changes,
			change{e.From.std(), func() { end = findKind(e.Kind).begin(rand.New(rand.NewPCG(e.Seed, 0)), w) }},
			change{e.To.std(), func() { end() }})
	}
	slices.SortStableFunc(changes, func(a, b change) int { return int(a.at - b.at) })
	began := time.Now()
	for _, c := range changes {
		time.Sleep(time.Until(began.Add(c.at)))
		c.do()
	}
	time.Sleep(time.Until(began.Add(p.Span.std())))
}

// arrivals returns n times in order: random ones, or close to the start or end of an
// episode.
func (p *plan) arrivals(rnd *rand.Rand, n int) []time.Duration {
	var out []time.Duration
	for range n {
		at := time.Duration(rnd.Int64N(int64(p.Span)))
		if len(p.Episodes) > 0 && rnd.IntN(3) > 0 {
			e := p.Episodes[rnd.IntN(len(p.Episodes))]
			at = [...]duration{e.From, e.To}[rnd.IntN(2)].std()
			at += time.Duration((rnd.Float64()*3 - 2) * float64(time.Minute))
		}
		out = append(out, max(0, at))
	}
	slices.Sort(out)
	return out
}
