package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
)

// Names of the loads of service benchmarks in their tables.
const (
	loadFull = "as fast as it answers"
	loadCalm = "calm"
	loadHalf = "offered half of its ceiling"
)

// whatLimited are phases with a database of limited capacity: it executes so many writes
// at a time, each of which takes limitedTime.
const (
	whatLimited   = "limited database"
	limitedWrites = 8
	limitedTime   = 4 * time.Millisecond
)

// benchOrder returns the body of a request for an order of two lines.
func benchOrder(customer string) []byte {
	return []byte(`{"invoice":"536365","customer_id":"` + customer + `","country":"United Kingdom","currency":"GBP","lines":[` +
		`{"sku":"85123A","description":"WHITE HANGING HEART T-LIGHT HOLDER","quantity":6,"unit_price":"2.55"},` +
		`{"sku":"84029E","description":"RED WOOLLY HOTTIE WHITE HEART.","quantity":6,"unit_price":"3.39"}]}`)
}

func newBenchOrdersCommand() *cobra.Command {
	var (
		f        benchFlags
		s        serviceBench
		rate     float64
		overload []float64
	)
	cmd := &cobra.Command{
		Use:   "orders",
		Short: "Measure the order service, and the same rows without HTTP",
		Long: `Measure the order service over HTTP and, in the same run, the same rows without
HTTP: the statements of the service for an order are recorded and repeated with
other ids by the client alone, and by a handler that only reads the request and
writes the rows.

  as fast as it answers   Each caller sends its next order as soon as it has a
                          response: the ceilings of the raw client, of the
                          handler and of the service, each without and with an
                          Idempotency-Key, which adds a conditional insert.
  offered                 Orders come at a fixed rate, independent of the
                          responses, to each of the three; and to the service at
                          multiples of its own ceiling, which must not reduce
                          its throughput much. Here the load takes processor
                          time from the service that it overloads. Of its
                          connections, 32 of 512 are patient: after a refusal
                          they wait for the second of Retry-After. The others
                          retry immediately, and the service delays their
                          refusals while processors are busy; so refusals of
                          both are columns of their own.
  limited database        The same with a database that executes 8 writes at a
                          time, 4 ms each, so that the database is the
                          bottleneck and not the processors of this machine.
  calm                    Orders come at a rate that all three can serve: the
                          latency that the service adds, and the time of a
                          request beside the database.

Load, service and database share the machine. The service is a process of its
own, and so is the embedded database; --scylla-hosts and --kafka-seeds replace
it. Exit status 1 if a request failed otherwise than by refusal.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			order := phase{
				items: 1, raw: func(r recordings) *bench.Recorded { return r.order },
				body: func(i int64) []byte { return benchOrder(benchCustomer + "-" + strconv.FormatInt(i, 10)) },
			}
			keyed := order
			keyed.what, keyed.raw = "with a key", func(r recordings) *bench.Recorded { return r.keyedOrder }
			keyed.header = func(i int64) string { return "Idempotency-Key: " + benchKey + "-" + strconv.FormatInt(i, 10) + "\r\n" }
			phases := newSlices(order, "/v1/orders", "/bare/orders", loadFull, nil)
			offered := fmt.Sprintf("offered %g/s", rate)
			phases = append(phases, newSlices(order, "/v1/orders", "/bare/orders", offered, always(rate))...)
			phases = append(phases, overloads(order, overload)...)
			phases = append(phases, newSlices(order, "/v1/orders", "/bare/orders", loadCalm, always(s.calm))...)
			phases = append(phases, newSlices(keyed, "/v1/orders", "/bare/orders-keyed", loadFull, nil)...)
			limited := order
			limited.what = whatLimited
			phases = append(phases,
				withLoad(limited, bench.Whole, "/v1/orders", loadFull, nil),
				withLoad(limited, bench.Whole, "/v1/orders", loadHalf, times(0.5)))
			phases = append(phases, overloads(limited, overload)...)
			return s.measure(cmd, &f, fmt.Sprintf("Orders; %d callers where the load is as fast as it answers; times in ms", s.concurrency), phases,
				func(r *bench.ServiceReport) []string { return orderGoals(r, offered, overload) })
		},
	}
	cmd.Flags().Float64Var(&rate, "rate", 10_000, "orders per second offered")
	cmd.Flags().Float64SliceVar(&overload, "overload", []float64{2, 5, 10}, "multiples of the service's ceiling offered")
	serviceFlags(cmd, &f, &s, 64)
	return cmd
}

func overloadPhase(n float64) string { return fmt.Sprintf("offered %gx its ceiling", n) }

// overloads returns the phases of p that offer multiples of its ceiling.
func overloads(p phase, multiples []float64) (out []phase) {
	for _, n := range multiples {
		out = append(out, withLoad(p, bench.Whole, "/v1/orders", overloadPhase(n), times(n)))
	}
	return out
}

// newSlices returns the three kinds of p under one load.
func newSlices(p phase, path, bare, load string, rate func(float64) float64) []phase {
	return []phase{withLoad(p, bench.Raw, "", load, rate), withLoad(p, bench.Bare, bare, load, rate), withLoad(p, bench.Whole, path, load, rate)}
}

func withLoad(p phase, kind, path, load string, rate func(float64) float64) phase {
	p.kind, p.path, p.load, p.rate = kind, path, load, rate
	return p
}

// orderGoals reports to which degree the goals of orders are met.
func orderGoals(r *bench.ServiceReport, offered string, overload []float64) (out []string) {
	share := func(p, of *bench.Phase) string {
		return fmt.Sprintf("%.0f %%", 100*p.Served.PerSecond/max(of.Served.PerSecond, 1e-9))
	}
	raw, bare, whole := r.Find("", bench.Raw, loadFull), r.Find("", bench.Bare, loadFull), r.Find("", bench.Whole, loadFull)
	if measuresAny(raw, bare, whole) {
		out = append(out, fmt.Sprintf("As fast as it answers, the service serves %.0f orders/s: %s of the raw client, which sends no HTTP, and %s of the bare handler.",
			whole.Served.PerSecond, share(whole, raw), share(whole, bare)))
	}
	if at, alone := r.Find("", bench.Whole, offered), r.Find("", bench.Raw, offered); measuresAny(at, alone, whole) {
		out = append(out, fmt.Sprintf("Of the orders %s it serves %.0f/s: %s of the raw client under the same load (the goal is 90), %s of itself as fast as it answers.",
			offered, at.Served.PerSecond, share(at, alone), share(at, whole)))
	}
	out = append(out, overloadGoals(r, "", loadCalm, overload)...)
	out = append(out, overloadGoals(r, whatLimited, loadHalf, overload)...)
	if w, b, c := r.Find("", bench.Whole, loadCalm), r.Find("", bench.Bare, loadCalm), r.Find("", bench.Raw, loadCalm); measuresAny(w, b, c) {
		out = append(out, fmt.Sprintf("Overhead at p95, calm: %.0f µs in the service beside the database (the goal is 300); over HTTP its p95 is %.0f µs above the bare handler's and %.0f µs above the raw client's.",
			1000*w.Own.P95, 1000*(w.Sent.P95-b.Sent.P95), 1000*(w.Sent.P95-c.Sent.P95)))
	}
	raw, bare, whole = r.Find("with a key", bench.Raw, loadFull), r.Find("with a key", bench.Bare, loadFull), r.Find("with a key", bench.Whole, loadFull)
	if measuresAny(raw, bare, whole) {
		out = append(out, fmt.Sprintf("With an Idempotency-Key it serves %.0f orders/s: %s of the raw client, %s of the bare handler.", whole.Served.PerSecond, share(whole, raw), share(whole, bare)))
	}
	return out
}

// measuresAny reports whether --only left out none of the phases.
func measuresAny(all ...*bench.Phase) bool {
	return !slices.ContainsFunc(all, func(p *bench.Phase) bool { return p.Done == 0 })
}

// overloadGoals compares the service under overload with itself as fast as it answers,
// and its latency with that of a calm load.
func overloadGoals(r *bench.ServiceReport, what, calm string, overload []float64) (out []string) {
	full, quiet := r.Find(what, bench.Whole, loadFull), r.Find(what, bench.Whole, calm)
	for _, n := range overload {
		at := r.Find(what, bench.Whole, overloadPhase(n))
		if !measuresAny(at, full, quiet) {
			continue
		}
		cores := func(micros float64) float64 { return micros * at.Served.PerSecond / 1e6 }
		out = append(out, fmt.Sprintf("%s: serves %.0f/s, %.0f %% of itself as fast as it answers (the goal is 90); p99 %.1f ms, %.1f times %s (the goal is below 4); a refusal takes %.1f ms at p99 for callers that keep to Retry-After (the goal is 5), %.1f ms for others. Busy processors: service %.2f, database %.2f, load %.2f.",
			at.Name(), at.Served.PerSecond, 100*at.Served.PerSecond/max(full.Served.PerSecond, 1e-9), at.Sent.P99, at.Sent.P99/max(quiet.Sent.P99, 1e-9), calm,
			at.PatientRefusal.P99, at.Refusal.P99, cores(at.Process), cores(at.Database), cores(at.Caller)))
	}
	return out
}

// startLimited starts a second database for the phases that need one, if the first is
// embedded too.
func (s *serviceBench) startLimited(teardown *daemon.Teardown, phases []phase) error {
	needed := func(p phase) bool { return p.what == whatLimited && s.isSelected(&p) }
	if !s.embedded || !slices.ContainsFunc(phases, needed) {
		return nil
	}
	on := *s.benchmark
	if err := on.startDatabase(teardown, "--writes", strconv.Itoa(limitedWrites), "--write-time", limitedTime.String()); err != nil {
		return err
	}
	for i := range phases {
		if phases[i].what == whatLimited {
			phases[i].on = &on
		}
	}
	return nil
}
