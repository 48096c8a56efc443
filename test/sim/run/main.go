// Command run tries many seeds of the simulation in test/sim, some at a time in
// each of a few processes, and says how to repeat failed seeds.
//
//	go run ./test/sim/run -seeds 10000 -first 1
//	go run ./test/sim/run -shrink bin/sim/4711.json
//
// `make sim` runs it. It ends with status 1 if a seed failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

func main() { os.Exit(run()) }

func run() int {
	var d driver
	flag.Uint64Var(&d.first, "first", 1, "the first seed")
	flag.Uint64Var(&d.seeds, "seeds", 200, "how many seeds, from the first on")
	flag.IntVar(&d.processes, "processes", runtime.NumCPU(), "how many processes run at the same time")
	flag.Uint64Var(&d.chunk, "chunk", 20, "how many seeds one process tries; the database driver leaves something behind after each")
	flag.DurationVar(&d.patience, "patience", 3*time.Minute, "how long one seed may take")
	flag.IntVar(&d.again, "again", 4, "how often a seed that failed is tried again, to say how often it fails")
	flag.StringVar(&d.keep, "keep", "bin/sim", "where the plans of seeds that fail are written")
	shrink := flag.String("shrink", "", "a plan that fails: leave out of it what is not needed for that, and print what is left")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := d.build(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(filepath.Dir(d.binary))
	var err error
	if *shrink != "" {
		err = d.shrink(ctx, *shrink)
	} else {
		err = d.all(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// driver tries seeds.
type driver struct {
	first, seeds, chunk uint64
	processes, again    int
	patience            time.Duration
	keep                string
	binary              string // of the tests

	mu     sync.Mutex
	failed []uint64
	sum    tally
}

// build makes the test binary.
func (d *driver) build(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "outbox-sim-")
	if err != nil {
		return err
	}
	d.binary = filepath.Join(dir, "sim.test")
	if d.keep, err = filepath.Abs(d.keep); err != nil {
		return err
	}
	if err := os.MkdirAll(d.keep, 0o755); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", d.binary, "./test/sim").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the simulation: %w\n%s", err, out)
	}
	return nil
}

// all tries all seeds.
func (d *driver) all(ctx context.Context) error {
	began := time.Now()
	chunks := make(chan uint64)
	var wg sync.WaitGroup
	for range d.processes {
		wg.Go(func() {
			for from := range chunks {
				d.tryAll(ctx, from, min(from+d.chunk, d.first+d.seeds))
			}
		})
	}
	for from := d.first; from < d.first+d.seeds && ctx.Err() == nil; from += d.chunk {
		chunks <- from
	}
	close(chunks)
	wg.Wait()
	fmt.Printf("%d seeds in %s: %s, %d undecided, %d failed\n", d.sum.Runs, time.Since(began).Round(time.Second), d.sum, d.sum.Undecided, len(d.failed))
	if len(d.failed) > 0 {
		return fmt.Errorf("failed: seeds %v", d.failed)
	}
	if most := max(1, d.sum.Runs/50); d.sum.Undecided > most {
		return fmt.Errorf("%d of %d seeds are undecided, more than %d: virtual time stopped in a client library", d.sum.Undecided, d.sum.Runs, most)
	}
	if d.sum.Runs < int(d.seeds) {
		return fmt.Errorf("%d of %d seeds were tried: %w", d.sum.Runs, d.seeds, context.Cause(ctx))
	}
	return nil
}

// tryAll tries the seeds from to to. A process that dies takes one seed with it.
func (d *driver) tryAll(ctx context.Context, from, to uint64) {
	for from < to && ctx.Err() == nil {
		next := from
		d.seedsIn(ctx, from, to, d.keep, func(r result) {
			next = r.seed + 1
			d.mu.Lock()
			d.sum.add(r)
			done, every := d.sum.Runs, max(1, int(d.seeds)/10)
			d.mu.Unlock()
			if !r.ok && !r.undecided {
				d.report(ctx, r)
			}
			if done%every == 0 {
				fmt.Printf("%d of %d seeds\n", done, d.seeds)
			}
		})
		if next == from {
			return // it could not even begin
		}
		from = next
	}
}

// report tries a seed that failed again, and says what is known of it.
func (d *driver) report(ctx context.Context, r result) {
	fails, tries := 1, 1
	for range d.again {
		d.seedsIn(ctx, r.seed, r.seed+1, "", func(again result) {
			tries++
			if !again.ok {
				fails++
			}
		})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = append(d.failed, r.seed)
	plan := filepath.Join(d.keep, fmt.Sprint(r.seed, ".json"))
	fmt.Printf("\nseed %d failed, %d of %d times\n%s\nrun it again:  make sim SEEDS=1 FIRST=%d\nwith less:     go run ./test/sim/run -shrink %s\nkeep it:       move %s to test/sim/testdata/seeds and say in it what it was\n\n",
		r.seed, fails, tries, r.log, r.seed, plan, plan)
}
