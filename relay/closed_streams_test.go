package relay

import (
	"slices"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// announced is how long before its start a real node announces a generation: twice its ring
// delay and 5 s.
const announced = 65 * time.Second

// newStreams announces new streams of the outbox and returns when they begin.
func (w *world) newStreams(conf scyllafake.Config) time.Time {
	w.t.Helper()
	var start time.Time
	var err error
	if n := w.db.Faults().Node(); conf.Vnodes || conf.Version == "5.1" {
		start, err = n.NewGeneration(faults.Generation{In: announced, ExtraTokens: 4})
	} else {
		start, err = n.Resize(faults.Resize{Keyspace: "outbox", Table: "outbox_messages", In: announced})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return start
}

// step is something that happens at a time from the beginning of new streams on.
type step struct {
	at time.Duration
	do func()
}

// take takes the steps in the order of their times.
func take(start time.Time, steps ...step) {
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	for _, s := range steps {
		time.Sleep(time.Until(start.Add(s.at)))
		s.do()
	}
}

// lateRows are causes of rows that appear in a stream that is closed, as seen on a node. e is the
// late event of an aggregate and the one after it. Rows of 2026.1 with vnodes appear up to 5 s
// after the end of their stream, or by the batchlog; rows of 5.1 never do.
var lateRows = []struct {
	name   string
	vnodes bool // happens with vnodes, too
	steps  func(w *world, start time.Time, e []outbox.Event) []step
}{
	{"time of the writer", true, func(w *world, start time.Time, e []outbox.Event) []step {
		return []step{
			{time.Second, func() { w.write(e[1]) }},
			{3 * time.Second, func() { w.writeAt(e[0], start.Add(-time.Second)) }},
		}
	}},
	{"time of the writer, long ago", false, func(w *world, start time.Time, e []outbox.Event) []step {
		return []step{
			{time.Second, func() { w.write(e[1]) }},
			{80 * time.Second, func() { w.writeAt(e[0], start.Add(-20*time.Second)) }},
		}
	}},
	{"replayed batch", true, func(w *world, _ time.Time, e []outbox.Event) []step {
		return []step{
			{-5 * time.Second, func() { w.writeLate(e[0], 52*time.Second) }}, // 47 s after the start
			{time.Second, func() { w.write(e[1]) }},
		}
	}},
	{"decided conditional write", false, func(w *world, _ time.Time, e []outbox.Event) []step {
		return []step{
			{-5 * time.Second, func() {
				w.db.Faults().MustAdd(faults.CASTimeout(true))
				if _, err := w.conditionally(e[0]); err == nil {
					w.t.Error("the conditional write did not time out")
				}
			}},
			{20 * time.Second, func() {
				if ok, err := w.conditionally(e[0]); ok || err != nil {
					w.t.Errorf("applied %v, %v, want the decided write to be finished", ok, err)
				}
				if ok, err := w.conditionally(e[1]); !ok || err != nil {
					w.t.Errorf("applied %v, %v", ok, err)
				}
			}},
		}
	}},
}

// relayTimes are when the relay is away, from the beginning of new streams on.
var relayTimes = []struct {
	name     string
	from, to time.Duration
}{
	{name: "runs"},
	{"away at the change", -20 * time.Second, 10 * time.Second},
	{"away until the row is there", -20 * time.Second, 85 * time.Second},
	{"restarts after the change", 2 * time.Second, 4 * time.Second},
	{"away for long", -20 * time.Second, time.Hour},
}

// checkClosed fails the test unless the row of an event is in a stream that ended before the
// row appeared.
func (w *world) checkClosed(e outbox.Event, start time.Time) {
	w.t.Helper()
	var stream []byte
	if err := w.session.Query(`SELECT "cdc$stream_id" FROM outbox_messages_scylla_cdc_log WHERE event_id = ? ALLOW FILTERING`, e.ID).Scan(&stream); err != nil {
		w.t.Fatalf("the log row of the late event: %v", err)
	}
	g, err := cdclog.NewGenerations(w.session, "outbox", outbox.DefaultTableName, nil).Generation(w.t.Context(), start)
	if err != nil {
		w.t.Fatal(err)
	}
	if g.Index(stream) >= 0 {
		w.t.Error("the row of the late event is in a new stream")
	}
}

// A row that appears in a stream after its end, with the time of before, is published once and
// in its place: the sweep reader reads a stream for the confidence window after its end, whatever
// scylla-cdc-go's own window would be, and does not begin the new streams before.
func TestClosedStreams_RowsWithinTheWindow(t *testing.T) {
	t.Parallel()
	eachLateRow(t, func(w *world, conf scyllafake.Config, steps func(w *world, start time.Time, e []outbox.Event) []step, from, to time.Duration) {
		all := relaytest.Events(3, 4, "OrderUpdated")
		_, stop := w.run()
		time.Sleep(3 * time.Minute)
		for _, e := range all[:3] {
			w.write(e)
		}
		start := w.newStreams(conf)
		stopped := func() {
			if err := stop(); err != nil {
				w.t.Error(err)
			}
		}
		what := steps(w, start, []outbox.Event{all[3], all[6]}) // of the first aggregate
		if from != to {
			what = append(what, step{from, stopped}, step{to, func() { _, stop = w.run() }})
		}
		for i, e := range []outbox.Event{all[4], all[5], all[7], all[8]} { // of the others
			what = append(what, step{time.Duration(2*i-3) * time.Second, func() { w.write(e) }})
		}
		take(start, what...)
		time.Sleep(5 * time.Minute)
		for _, e := range all[9:] {
			w.write(e)
		}
		time.Sleep(5 * time.Minute)
		stopped()
		w.checkClosed(all[3], start)
		got := w.consume("OrderUpdated")
		relaytest.CheckOrder(w.t, got, all)
		relaytest.CheckTimes(w.t, got)
	})
}

// eachLateRow runs f for each cause, kind of streams, and times of the relay that are possible.
func eachLateRow(t *testing.T, f func(w *world, conf scyllafake.Config, steps func(w *world, start time.Time, e []outbox.Event) []step, from, to time.Duration)) {
	t.Helper()
	for kind, conf := range map[string]scyllafake.Config{"tablets": {Tokens: 4}, "vnodes": {Tokens: 4, Vnodes: true}} {
		for i, row := range lateRows {
			for j, times := range relayTimes {
				if conf.Vnodes && !row.vnodes {
					continue
				}
				t.Run(kind+"/"+row.name+"/relay "+times.name, func(t *testing.T) {
					t.Parallel()
					if (i+j)%2 == 1 {
						relaytest.Long(t)
					}
					inBubble(t, func(t *testing.T) {
						w := newWorld(t, conf, wideWindow)
						defer w.close()
						f(w, conf, row.steps, times.from, times.to)
					})
				})
			}
		}
	}
}

// A batch is replayed into a closed stream when its nodes are back, without an upper bound: far
// behind the confidence window, with a relay that begins and ends in between. The next event of
// the aggregate finds the row.
func TestClosedStreams_RowsBeyondTheWindow(t *testing.T) {
	t.Parallel()
	for kind, conf := range map[string]scyllafake.Config{"tablets": {Tokens: 4}, "vnodes": {Tokens: 4, Vnodes: true}} {
		for _, late := range []time.Duration{10 * time.Minute, 5 * time.Hour} {
			for _, restarts := range []int{0, 2} {
				t.Run(kind+"/"+late.String()+map[int]string{0: "/relay runs", 2: "/relay restarts"}[restarts], func(t *testing.T) {
					t.Parallel()
					if late > time.Hour {
						relaytest.Long(t)
					}
					inBubble(t, func(t *testing.T) {
						w := newWorld(t, conf, wideWindow)
						defer w.close()
						_, stop := w.run()
						again := func() {
							if err := stop(); err != nil {
								t.Error(err)
							}
							_, stop = w.run()
						}
						time.Sleep(3 * time.Minute)
						all := relaytest.Events(1, 3, "OrderUpdated")
						w.write(all[0])
						start := w.newStreams(conf)
						steps := []step{
							{-5 * time.Second, func() { w.writeLate(all[1], late) }},
							{late + 5*time.Minute, func() { w.write(all[2]) }},
						}
						if restarts > 0 {
							steps = append(steps, step{5 * time.Minute, again}, step{late + 4*time.Minute, again})
						}
						take(start, steps...)
						time.Sleep(5 * time.Minute)
						if err := stop(); err != nil {
							t.Error(err)
						}
						w.checkClosed(all[1], start)
						relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
					})
				})
			}
		}
	}
}
