package sim

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

// plan contains what a seed determines of a simulation except details: customers,
// configuration and faults. A plan that found a bug is kept as a file, so that it stays
// the same when the generator changes.
type plan struct {
	// Was describes the bug that a kept plan found.
	Was  string `json:"was,omitempty"`
	Seed uint64 `json:"seed"`
	// Span is the duration of arrivals and faults.
	Span duration `json:"span"`
	// Pace is the interval at which the relay reads idle streams.
	Pace duration `json:"pace"`
	// Window is the relay's confidence window.
	Window duration `json:"window"`
	// LogTTL is the TTL of the CDC log, 0 for longer than any simulation.
	LogTTL  duration `json:"log_ttl,omitempty"`
	Tablets bool     `json:"tablets,omitempty"`
	// Shards is the number of shards of the node, 0 for one.
	Shards   int  `json:"shards,omitempty"`
	Tail     bool `json:"tail,omitempty"`
	Hints    bool `json:"hints,omitempty"`
	ReadBack bool `json:"read_back,omitempty"`
	// Denied includes denials of read access to topics.
	Denied bool `json:"denied,omitempty"`
	// Verifier runs the verifier of outbox admin with repairs.
	Verifier bool `json:"verifier,omitempty"`
	InFlight int  `json:"in_flight"`
	Backlog  int  `json:"backlog"`
	// Aggregates is the number of idle aggregates in the relay's memory.
	Aggregates int `json:"aggregates"`
	// SpillLimit is the number of dead letters that an open breaker writes, 0 for no
	// limit, -1 for none.
	SpillLimit int `json:"spill_limit,omitempty"`
	// Skews contains the offsets of the order services' clocks, NodeSkew is that of the
	// database's.
	Skews    []duration `json:"skews"`
	NodeSkew duration   `json:"node_skew"`
	// HostAhead is how far the clock of the relay's host is ahead of all others.
	HostAhead duration `json:"host_ahead,omitempty"`
	// BrokerTime makes the brokers date the records (LogAppendTime).
	BrokerTime bool `json:"broker_time,omitempty"`
	// Brokers is the number of brokers, 0 for one.
	Brokers int `json:"brokers,omitempty"`
	// LogChanges includes changes of the CDC log of the outbox table.
	LogChanges bool `json:"log_changes,omitempty"`
	// Descending is an outbox table that has the last event of an aggregate first.
	Descending bool `json:"descending,omitempty"`
	Customers  int  `json:"customers"`
	Parcels    int  `json:"parcels"`
	// Rewrites is the number of aggregates with an event that is stored again later.
	Rewrites int `json:"rewrites,omitempty"`
	// Remembered is the number of events in the dedup index, 0 for the default.
	Remembered int       `json:"remembered,omitempty"`
	Episodes   []episode `json:"episodes"`
}

// episode is a fault with its start and end.
type episode struct {
	Kind string   `json:"kind"`
	From duration `json:"from"`
	To   duration `json:"to"`
	Seed uint64   `json:"seed"`
}

// duration is a time.Duration encoded in JSON as text.
type duration time.Duration

func (d duration) std() time.Duration { return time.Duration(d) }

func (d duration) String() string { return d.std().String() }

// MarshalText implements encoding.TextMarshaler.
func (d duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(b []byte) error {
	parsed, err := time.ParseDuration(string(b))
	*d = duration(parsed)
	return err
}

// wideWindow covers rows that appear ten minutes late.
const wideWindow = 12 * time.Minute

// shardedSpan is the maximum span of a simulation with several shards: each shard has its
// own connections, which dominate the cost of one of days.
const shardedSpan = 90 * time.Minute

// newPlan returns the plan of a seed.
func newPlan(seed uint64) *plan {
	rnd := rand.New(rand.NewPCG(seed, 'p'))
	p := &plan{
		Seed: seed, Window: duration(relay.Defaults().ConfidenceWindow), Pace: duration(tailInterval),
		Tablets: rnd.IntN(3) > 0, Tail: rnd.IntN(4) > 0, ReadBack: rnd.IntN(4) > 0,
		InFlight: 5 + rnd.IntN(60), Backlog: 5 + rnd.IntN(60), Aggregates: 5 + rnd.IntN(100),
		Customers: 20 + rnd.IntN(50), Parcels: 1 + rnd.IntN(6),
	}
	p.Hints, p.Denied = p.Tail && seed%2 == 0, seed%5 == 0
	if rnd.IntN(4) == 0 {
		p.Window = duration(wideWindow)
	}
	switch rnd.IntN(20) {
	case 0: // outages of up to a day
		p.Span, p.Pace = duration(2*24*time.Hour), duration(5*time.Minute)
	case 1, 2, 3:
		p.Span, p.Pace = duration(12*time.Hour), duration(time.Minute)
	default:
		p.Span = duration(90 * time.Minute)
	}
	if rnd.IntN(5) == 0 {
		// Outages of the relay and of the broker exceed it.
		p.LogTTL = duration(30 * time.Minute)
	}
	for range 1 + rnd.IntN(3) {
		p.Skews = append(p.Skews, duration(seconds(rnd, 10)))
	}
	if n := rnd.IntN(8); n < 3 {
		p.SpillLimit = [...]int{-1, 3, 1 + rnd.IntN(30)}[n]
	}
	if rnd.IntN(3) == 0 {
		p.NodeSkew = duration(seconds(rnd, 10))
	}
	p.adversary(rand.New(rand.NewPCG(seed, 'x')))
	possible := slices.DeleteFunc(slices.Clone(kinds), func(k *kind) bool { return k.when != nil && !k.when(p) })
	for range 3 + rnd.IntN(14) {
		k := possible[rnd.IntN(len(possible))]
		e := episode{Kind: k.name, From: duration(rnd.Int64N(int64(p.Span))), Seed: rnd.Uint64()}
		e.To = e.From + duration(k.length(rnd, p.Span.std()))
		if !slices.ContainsFunc(p.Episodes, e.collides) {
			p.Episodes = append(p.Episodes, e)
		}
	}
	slices.SortFunc(p.Episodes, func(a, b episode) int { return int(a.From - b.From) })
	if p.Span.std() <= shardedSpan && rnd.IntN(4) == 0 {
		p.Shards = 2 + rnd.IntN(7)
	}
	p.Verifier = rnd.IntN(3) == 0
	// Without a right to read its topics a relay publishes a row again that is stored again.
	if readsTopics(p) && rnd.IntN(2) == 0 {
		p.Rewrites = 1 + rnd.IntN(8)
		if rnd.IntN(2) == 0 {
			// A start must remember what was published since the checkpoints, and most of
			// these plans have few more events than that.
			p.Remembered = 150 + rnd.IntN(200)
		}
	}
	return p
}

// adversary draws what contradicts premises of the relay and is so for the whole simulation.
func (p *plan) adversary(rnd *rand.Rand) {
	if rnd.IntN(4) == 0 {
		p.Brokers = 3
	}
	p.LogChanges, p.Descending = rnd.IntN(5) == 0, rnd.IntN(6) == 0
	if rnd.IntN(6) == 0 {
		p.HostAhead = [...]duration{duration(time.Hour), duration(-time.Hour)}[rnd.IntN(2)]
		if p.LogTTL > 0 || p.LogChanges {
			// Rows may be passed over by a clock that is ahead by more than half of the ttl
			// (docs/promises.md).
			p.HostAhead = duration(-time.Hour)
		}
	}
	p.BrokerTime = rnd.IntN(5) == 0
}

// seconds returns a random duration of at most so many seconds, positive or negative,
// with millisecond precision.
func seconds(rnd *rand.Rand, most int) time.Duration {
	return time.Duration(rnd.IntN(2000*most+1)-1000*most) * time.Millisecond
}

// length returns the duration of an episode of the kind: mostly short, so that many can
// overlap, and sometimes up to the maximum.
func (k *kind) length(rnd *rand.Rand, span time.Duration) time.Duration {
	most := k.most
	if most == untilSpan {
		most = span / 2
	}
	if most == 0 {
		return 0
	}
	low, high := math.Log(float64(time.Second)), math.Log(float64(most))
	return time.Duration(math.Exp(low + rnd.Float64()*(high-low))).Truncate(time.Millisecond)
}

// collides reports whether two episodes must not be in the same plan.
func (e episode) collides(o episode) bool {
	const apart = duration(3 * time.Minute)
	return (slices.Contains(findKind(e.Kind).excluding, o.Kind) || slices.Contains(findKind(o.Kind).excluding, e.Kind)) &&
		e.From < o.To+apart && o.From < e.To+apart
}

// String returns the settings and episodes of the plan.
func (p *plan) String() string {
	var b strings.Builder
	if p.LogTTL > 0 {
		fmt.Fprintf(&b, "the log keeps its rows for %s, ", p.LogTTL)
	}
	fmt.Fprintf(&b, "%d brokers that date records %t, changes of the log %t, descending table %t, the clock of the relay's host ahead by %s, ", max(p.Brokers, 1), p.BrokerTime, p.LogChanges, p.Descending, p.HostAhead)
	fmt.Fprintf(&b, "%s long, window %s, %d shards, tablets %t, tail %t, hints %t, read-back %t, denied %t, verifier %t, at most %d in flight, spill limit %d, %d customers, %d parcels, %d rows stored again, %d events remembered, clocks off by %v, the database's by %s\n",
		p.Span, p.Window, max(p.Shards, 1), p.Tablets, p.Tail, p.Hints, p.ReadBack, p.Denied, p.Verifier, p.InFlight, p.SpillLimit, p.Customers, p.Parcels, p.Rewrites, p.Remembered, p.Skews, p.NodeSkew)
	for _, e := range p.Episodes {
		fmt.Fprintf(&b, "%16s to %16s  %s\n", e.From, e.To, e.Kind)
	}
	return b.String()
}

// encode returns the plan as a file.
func (p *plan) encode() []byte {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		panic(err) // every field can be encoded
	}
	return append(b, '\n')
}

// decodePlan decodes the result of encode.
func decodePlan(b []byte) (*plan, error) {
	p := &plan{}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("read a plan: %w", err)
	}
	for _, e := range p.Episodes {
		if findKind(e.Kind) == nil {
			return nil, fmt.Errorf("read a plan: unknown kind %q", e.Kind)
		}
	}
	return p, nil
}
