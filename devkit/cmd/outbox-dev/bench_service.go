package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
)

const (
	// serviceWarmUp is the part of a phase that does not count.
	serviceWarmUp = time.Second
	// callers is the number of connections of an open load: more than a service lets
	// wait, so that the service limits the requests in progress.
	callers = 512
	// patientCallers of them keep to Retry-After, so that the load remains an overload.
	patientCallers = 32
	// callerPatience is how late a request may be before its caller gives up.
	callerPatience = time.Second
	// callerTimeout limits a request.
	callerTimeout = 30 * time.Second
)

// serviceBench measures the order API, and the client alone that writes the same rows.
type serviceBench struct {
	*benchmark
	concurrency int
	calm        float64
	only        string
	service     bench.ServiceReport
}

// phase is one load on one kind of handler.
type phase struct {
	what, kind, load string
	// rate returns calls per second from the ceiling, the rate that the same kind serves as
	// fast as it answers; nil means as fast as concurrency callers get responses.
	rate func(ceiling float64) float64
	// on is the benchmark with the database of the phase, nil for the usual one.
	on *benchmark
	// items is the number of items of one call.
	items int
	// raw selects the statements that the client alone sends.
	raw func(recordings) *bench.Recorded
	// path, header and body are the parts of a request.
	path   string
	header func(i int64) string
	body   func(i int64) []byte
}

// String returns the name of the phase in the report.
func (p *phase) String() string {
	return (&bench.Phase{What: p.what, Kind: p.kind, Load: p.load}).Name()
}

// serviceFlags adds the common flags of the benchmarks of services.
func serviceFlags(cmd *cobra.Command, f *benchFlags, s *serviceBench, concurrency int) {
	fl := cmd.Flags()
	fl.DurationVar(&f.duration, "duration", 5*time.Second, "duration of each load after a second of warm-up")
	f.addSizeFlags(fl)
	fl.IntVar(&s.concurrency, "concurrency", concurrency, "concurrent calls where the load is as fast as the answers")
	fl.Float64Var(&s.calm, "calm", 1000, "requests per second for the measurement of overheads")
	fl.StringVar(&s.only, "only", "", "measure only rows whose name contains this text")
	f.addFlags(cmd, "the service")
}

func (s *serviceBench) validate(f *benchFlags) error {
	var errs problems
	bad := errs.bad
	bad(s.concurrency < 1 || s.concurrency > callers, "--concurrency %d: use 1 to %d", s.concurrency, callers)
	bad(s.calm <= 0 || s.calm > 1e6, "--calm %g: use requests per second, up to a million", s.calm)
	bad(f.duration <= 0, "--duration %s: must be positive", f.duration)
	bad(f.runs < 1, "--runs %d: use 1 or more", f.runs)
	bad(f.payload < 32 || f.payload > 200_000, "--payload %d: use 32 to 200000 bytes", f.payload)
	return errs.with(f.output)
}

// isSelected reports whether a phase is measured.
func (s *serviceBench) isSelected(p *phase) bool { return strings.Contains(p.String(), s.only) }

// checkOnly returns an error if --only is a part of no name.
func checkOnly(only string, names []string) error {
	if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, only) }) {
		return nil
	}
	return fmt.Errorf("--only %q: use a part of one of these: \"%s\"", only, strings.Join(names, `", "`))
}

// checkOnly returns an error if no phase is selected, or if the ceiling of a selected one is
// not measured.
func (s *serviceBench) checkOnly(phases []phase) error {
	ceilings := map[string]bool{}
	names := make([]string, 0, len(phases))
	for i := range phases {
		p := &phases[i]
		names = append(names, p.String())
		if !s.isSelected(p) {
			continue
		}
		if p.rate == nil {
			ceilings[p.what+p.kind] = true
		} else if p.rate(0) == 0 && !ceilings[p.what+p.kind] {
			return fmt.Errorf("--only %q: the rate of %q is a multiple of a row that it leaves out; use a part of both names", s.only, p)
		}
	}
	return checkOnly(s.only, names)
}

// measure runs the phases, one after the other, once for each run.
func (s *serviceBench) measure(cmd *cobra.Command, f *benchFlags, title string, phases []phase, goals func(*bench.ServiceReport) []string) (err error) {
	if err := errors.Join(s.validate(f), s.checkOnly(phases)); err != nil {
		return cli.Usage(err)
	}
	if s.benchmark, err = newBenchmark(cmd, *f); err != nil {
		return err
	}
	ctx := cmd.Context()
	teardown := daemon.Teardown{Logger: s.log}
	defer func() { err = errors.Join(err, teardown.Run()) }()
	if err := s.start(&teardown); err != nil {
		return err
	}
	if err := s.startLimited(&teardown, phases); err != nil {
		return err
	}
	r := &s.service
	*r = bench.ServiceReport{Head: s.head(), Title: title}
	runs := make([][]bench.Phase, len(phases))
	for run := range s.runs {
		ceilings := map[string]float64{}
		for i, p := range phases {
			if !s.isSelected(&p) || p.what == whatLimited && p.on == nil {
				continue
			}
			ceiling := p.what + p.kind
			on := *s
			if p.on != nil {
				on.benchmark = p.on
			}
			got, err := on.phase(ctx, &p, ceilings[ceiling])
			if err != nil {
				return fmt.Errorf("%s: %w", &p, err)
			}
			if p.rate == nil {
				ceilings[ceiling] = got.Served.PerSecond / float64(p.items)
			}
			s.progress("run %d of %d: %s: %.0f/s served of %.0f/s, p95 %.2f ms, %.0f µs of processor each; others kept %.1f cores busy",
				run+1, s.runs, &p, got.Served.PerSecond, got.Offered.Offered*float64(p.items), got.Sent.P95, got.CPU(), got.Others)
			runs[i] = append(runs[i], got)
		}
	}
	for _, of := range runs {
		if len(of) == 0 {
			continue
		}
		r.Phases = append(r.Phases, bench.Median(of))
	}
	r.Goals = goals(r)
	return s.print(r, r.OK())
}

// phase measures one phase, in a keyspace of its own.
func (s *serviceBench) phase(ctx context.Context, ph *phase, ceiling float64) (got bench.Phase, err error) {
	p, err := s.newPlace(ctx)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, p.remove(ctx)) }()
	o := bench.Offer{Duration: s.duration, WarmUp: min(serviceWarmUp, s.duration), Workers: s.concurrency}
	if ph.rate != nil {
		o.Rate, o.Workers, o.Patience, o.Patient = ph.rate(ceiling), callers, callerPatience, patientCallers
	}
	got = bench.Phase{What: ph.what, Kind: ph.kind, Load: ph.load}
	var child *bench.Child
	var processes []*bench.Child // child, if there is one
	if ph.kind == bench.Raw {
		cluster, err := s.conf.Scylla.Cluster(p.keyspace)
		if err != nil {
			return got, err
		}
		r, err := record(ctx, cluster, p.session, s.payload)
		if err != nil {
			return got, err
		}
		what := ph.raw(r)
		o.Do = func(ctx context.Context, _ int, i int64) (bench.Answer, int) {
			if err := sendMany(ctx, what, i, ph.items); err != nil {
				s.log.Debug("raw client", "err", err)
				return bench.Failed, 0
			}
			return bench.Served, ph.items
		}
	} else {
		if child, err = s.serve(p); err != nil {
			return got, err
		}
		defer func() { err = errors.Join(err, child.Stop()) }()
		processes = append(processes, child)
		all := make([]bench.Caller, o.Workers)
		for i := range all {
			all[i] = bench.Caller{Addr: child.Attr("addr"), Timeout: callerTimeout}
			defer all[i].Close()
		}
		o.Do = func(ctx context.Context, w int, i int64) (bench.Answer, int) {
			path, header := ph.path, ""
			if ph.kind == bench.Bare {
				path += "?" + strconv.FormatInt(i, 10)
			} else if ph.header != nil {
				header = ph.header(i)
			}
			status, err := all[w].Post(ctx, path, header, ph.body(i))
			a := all[w].ClassifyAnswer(status, err)
			if a == bench.Failed {
				s.log.Debug("request failed", "status", status, "err", err)
			}
			if a != bench.Served {
				return a, 0
			}
			return a, ph.items
		}
	}
	before := s.usages(ctx, processes...)
	profiled := func() error { return nil }
	if child != nil {
		profiled = s.profile(ctx, child, strings.Join([]string{ph.what, ph.kind, ph.load}, " "), s.duration)
	}
	got.Offered = o.Run(ctx)
	after := s.usages(ctx, processes...)
	if err := profiled(); err != nil {
		return got, err
	}
	if child != nil {
		if got.Own, err = fetchOwnLatency(ctx, child); err != nil {
			return got, err
		}
	}
	got.Spent(after.process.Since(before.process), after.database.Since(before.database), after.self.Since(before.self))
	got.Others = after.others(before)
	return got, ctx.Err()
}

// serve starts the order API in a process of its own.
func (s *serviceBench) serve(p *place) (*bench.Child, error) {
	args := append(slices.Concat([]string{"bench", "serve"}, s.forward),
		"--scylla-keyspace", p.keyspace, "--payload", strconv.Itoa(s.payload),
		"--messages-topics", benchTopic, "--ops-addr", "127.0.0.1:0", "--ops-profiles="+strconv.FormatBool(s.profiles != ""), "--log-format", "json")
	return s.program.Start("order API", serving, args...)
}

// fetchOwnLatency requests the time that requests took beside the database.
func fetchOwnLatency(ctx context.Context, child *bench.Child) (l bench.Latency, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, child.Attr("ops")+"/readyz", nil)
	if err != nil {
		return l, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return l, fmt.Errorf("read the service's own time: %w", err)
	}
	defer resp.Body.Close()
	return l, json.NewDecoder(resp.Body).Decode(&l)
}

// always returns a rate that does not depend on the ceiling.
func always(rate float64) func(float64) float64 { return func(float64) float64 { return rate } }

// times returns a rate of n times the ceiling.
func times(n float64) func(float64) float64 {
	return func(ceiling float64) float64 { return n * ceiling }
}
