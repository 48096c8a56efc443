package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
)

// Names of the loads of service benchmarks in their tables.
const (
	loadFull = "as fast as it answers"
	loadCalm = "calm"
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
                          multiples of the raw ceiling, which must not reduce
                          its throughput much.
  calm                    Orders come at a rate that all three can serve: the
                          latency that the service adds, and the time of a
                          request beside the database.

Load, service and database share the machine. The service is a process of its
own, and so is the embedded database; --scylla-hosts and --kafka-seeds replace
it. Exit status 1 if a request failed otherwise than with 429 or 503.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			order := phase{
				items: 1, raw: func(r recordings) *bench.Recorded { return r.order },
				body: func(i int64) []byte { return benchOrder(benchCustomer + "-" + strconv.FormatInt(i, 10)) },
			}
			keyed := order
			keyed.what, keyed.raw = "with a key", func(r recordings) *bench.Recorded { return r.keyedOrder }
			keyed.header = func(i int64) string { return "Idempotency-Key: " + benchKey + "-" + strconv.FormatInt(i, 10) + "\r\n" }
			phases := slicesOf(order, "/v1/orders", "/bare/orders", loadFull, nil)
			offered := fmt.Sprintf("offered %g/s", rate)
			phases = append(phases, slicesOf(order, "/v1/orders", "/bare/orders", offered, always(rate))...)
			for _, n := range overload {
				phases = append(phases, withLoad(order, bench.Whole, "/v1/orders", overloaded(n), times(n)))
			}
			phases = append(phases, slicesOf(order, "/v1/orders", "/bare/orders", loadCalm, always(s.calm))...)
			phases = append(phases, slicesOf(keyed, "/v1/orders", "/bare/orders-keyed", loadFull, nil)...)
			return s.measure(cmd, &f, fmt.Sprintf("Orders; %d callers where the load is as fast as it answers; times in ms", s.concurrency), phases,
				func(r *bench.ServiceReport) []string { return orderGoals(r, offered, overload) })
		},
	}
	cmd.Flags().Float64Var(&rate, "rate", 10_000, "orders per second offered")
	cmd.Flags().Float64SliceVar(&overload, "overload", []float64{2, 5, 10}, "multiples of the raw ceiling offered")
	serviceFlags(cmd, &f, &s, 256)
	return cmd
}

func overloaded(n float64) string { return fmt.Sprintf("offered %gx the raw ceiling", n) }

// slicesOf returns the three kinds of p under one load.
func slicesOf(p phase, path, bare, load string, rate func(float64) float64) []phase {
	return []phase{withLoad(p, bench.Raw, "", load, rate), withLoad(p, bench.Bare, bare, load, rate), withLoad(p, bench.Whole, path, load, rate)}
}

func withLoad(p phase, kind, path, load string, rate func(float64) float64) phase {
	p.kind, p.path, p.load, p.rate = kind, path, load, rate
	return p
}

// orderGoals reports to which degree the goals of orders are met.
func orderGoals(r *bench.ServiceReport, offered string, overload []float64) []string {
	raw, bare, whole := r.Find("", bench.Raw, loadFull), r.Find("", bench.Bare, loadFull), r.Find("", bench.Whole, loadFull)
	share := func(p, of *bench.Phase) string {
		return fmt.Sprintf("%.0f %%", 100*p.Served.PerSecond/max(of.Served.PerSecond, 1e-9))
	}
	out := []string{
		fmt.Sprintf("As fast as it answers, the service serves %.0f orders/s: %s of the raw client, which sends no HTTP, and %s of the bare handler.",
			whole.Served.PerSecond, share(whole, raw), share(whole, bare)),
	}
	at, alone := r.Find("", bench.Whole, offered), r.Find("", bench.Raw, offered)
	out = append(out, fmt.Sprintf("Of the orders %s it serves %.0f/s: %s of the raw client under the same load (the goal is 90), %s of itself as fast as it answers.",
		offered, at.Served.PerSecond, share(at, alone), share(at, whole)))
	for _, n := range overload {
		at := r.Find("", bench.Whole, overloaded(n))
		out = append(out, fmt.Sprintf("Offered %g times the raw ceiling it serves %.0f/s: %s of itself without overload.", n, at.Served.PerSecond, share(at, whole)))
	}
	calm := func(kind string) *bench.Phase { return r.Find("", kind, loadCalm) }
	w, b, c := calm(bench.Whole), calm(bench.Bare), calm(bench.Raw)
	out = append(out, fmt.Sprintf("Overhead at p95, calm: %.0f µs in the service beside the database (the goal is 300); over HTTP its p95 is %.0f µs above the bare handler's and %.0f µs above the raw client's.",
		1000*w.Own.P95, 1000*(w.Sent.P95-b.Sent.P95), 1000*(w.Sent.P95-c.Sent.P95)))
	raw, bare, whole = r.Find("with a key", bench.Raw, loadFull), r.Find("with a key", bench.Bare, loadFull), r.Find("with a key", bench.Whole, loadFull)
	return append(out, fmt.Sprintf("With an Idempotency-Key it serves %.0f orders/s: %s of the raw client, %s of the bare handler.", whole.Served.PerSecond, share(whole, raw), share(whole, bare)))
}
