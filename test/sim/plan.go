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

// plan is everything that a seed decides of a simulation but the small things:
// who comes, how it is all set up, and what goes wrong when. A plan that found
// something is kept as a file, so that it stays what it was when the
// generator changes.
type plan struct {
	// Was says what a kept plan found.
	Was  string `json:"was,omitempty"`
	Seed uint64 `json:"seed"`
	// Span is how long customers come and things go wrong.
	Span duration `json:"span"`
	// Pace is how often the relay reads idle streams.
	Pace duration `json:"pace"`
	// Window is the relay's confidence window.
	Window duration `json:"window"`
	// LogTTL is how long the CDC log keeps its rows, 0 for longer than anything
	// lasts.
	LogTTL  duration `json:"log_ttl,omitempty"`
	Tablets bool     `json:"tablets,omitempty"`
	// Shards is how many the node has, 0 for one.
	Shards   int  `json:"shards,omitempty"`
	Tail     bool `json:"tail,omitempty"`
	Hints    bool `json:"hints,omitempty"`
	ReadBack bool `json:"read_back,omitempty"`
	// Denied lets topics be denied to those who read them, too.
	Denied bool `json:"denied,omitempty"`
	// Verifier has outbox admin verify the outbox, and repair what is missing.
	Verifier bool `json:"verifier,omitempty"`
	InFlight int  `json:"in_flight"`
	Backlog  int  `json:"backlog"`
	// Aggregates is how many idle aggregates the relay remembers.
	Aggregates int `json:"aggregates"`
	// SpillLimit is how many dead letters an open breaker makes, 0 for as many as
	// there are, -1 for none.
	SpillLimit int `json:"spill_limit,omitempty"`
	// Skews is how far the clocks of the order services are ahead, NodeSkew that of the database.
	Skews     []duration `json:"skews"`
	NodeSkew  duration   `json:"node_skew"`
	Customers int        `json:"customers"`
	Parcels   int        `json:"parcels"`
	Episodes  []episode  `json:"episodes"`
}

// episode is something that goes wrong for a while.
type episode struct {
	Kind string   `json:"kind"`
	From duration `json:"from"`
	To   duration `json:"to"`
	Seed uint64   `json:"seed"`
}

// duration is a time.Duration that JSON spells as people do.
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

// wideWindow covers rows that turn up ten minutes late.
const wideWindow = 12 * time.Minute

// shardedSpan is how long a simulation with several shards lasts at most: every shard
// has its connections, which costs more than anything else in one of days.
const shardedSpan = 90 * time.Minute

// newPlan is the plan of a seed.
func newPlan(seed uint64) *plan {
	rnd := rand.New(rand.NewPCG(seed, 'p'))
	p := &plan{
		Seed: seed, Window: duration(relay.DefaultConfidenceWindow), Pace: duration(tailInterval),
		Tablets: rnd.IntN(3) == 0, Tail: rnd.IntN(4) > 0, ReadBack: rnd.IntN(4) > 0,
		InFlight: 5 + rnd.IntN(60), Backlog: 5 + rnd.IntN(60), Aggregates: 5 + rnd.IntN(100),
		Customers: 20 + rnd.IntN(50), Parcels: 1 + rnd.IntN(6),
	}
	p.Hints, p.Denied = p.Tail && seed%2 == 0, seed%5 == 0
	if rnd.IntN(4) == 0 {
		p.Window = duration(wideWindow)
	}
	switch rnd.IntN(20) {
	case 0: // outages of days
		p.Span, p.Pace = duration(3*24*time.Hour), duration(5*time.Minute)
	case 1, 2, 3:
		p.Span, p.Pace = duration(12*time.Hour), duration(time.Minute)
	default:
		p.Span = duration(90 * time.Minute)
	}
	if rnd.IntN(5) == 0 {
		// Outages of the relay and of the broker outrun it.
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
	return p
}

// seconds is up to so many before or after, to the millisecond.
func seconds(rnd *rand.Rand, most int) time.Duration {
	return time.Duration(rnd.IntN(2000*most+1)-1000*most) * time.Millisecond
}

// length is how long an episode of the kind lasts: mostly short, so that many
// can meet, and now and then as long as may be.
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

// collides says that two must not be in the same plan.
func (e episode) collides(o episode) bool {
	const apart = duration(3 * time.Minute)
	return (slices.Contains(kindOf(e.Kind).excluding, o.Kind) || slices.Contains(kindOf(o.Kind).excluding, e.Kind)) &&
		e.From < o.To+apart && o.From < e.To+apart
}

// String lists what will happen.
func (p *plan) String() string {
	var b strings.Builder
	if p.LogTTL > 0 {
		fmt.Fprintf(&b, "the log keeps its rows for %s, ", p.LogTTL)
	}
	fmt.Fprintf(&b, "%s long, window %s, %d shards, tablets %t, tail %t, hints %t, read-back %t, denied %t, verifier %t, at most %d in flight, spill limit %d, %d customers, %d parcels, clocks off by %v, the database's by %s\n",
		p.Span, p.Window, max(p.Shards, 1), p.Tablets, p.Tail, p.Hints, p.ReadBack, p.Denied, p.Verifier, p.InFlight, p.SpillLimit, p.Customers, p.Parcels, p.Skews, p.NodeSkew)
	for _, e := range p.Episodes {
		fmt.Fprintf(&b, "%16s to %16s  %s\n", e.From, e.To, e.Kind)
	}
	return b.String()
}

// encode is the plan as a file.
func (p *plan) encode() []byte {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		panic(err) // it has nothing that JSON cannot hold
	}
	return append(b, '\n')
}

// decodePlan reads what encode wrote.
func decodePlan(b []byte) (*plan, error) {
	p := &plan{}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("read a plan: %w", err)
	}
	for _, e := range p.Episodes {
		if kindOf(e.Kind) == nil {
			return nil, fmt.Errorf("read a plan: there is no kind %q", e.Kind)
		}
	}
	return p, nil
}
