// Command tiers runs targets of the Makefile, some concurrently, and reports
// the duration of each and a short summary of the failures at the end of its
// output. It also reports flaky tests, which failed and passed when repeated.
// gotestsum runs and repeats the Go tests, and lists their failures.
//
//	go run ./test/tiers lint test-race     # starts no target after a failure
//	go run ./test/tiers -k lint test-race  # runs all; so does CI=true
//
// `make test` runs it with all tiers. Their full output is in bin/tiers.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

func main() { os.Exit(run()) }

func run() int {
	all := flag.Bool("k", os.Getenv("CI") == "true", "continue after a failed tier")
	lanes := flag.Int("lanes", 5, "number of concurrent tiers")
	logs := flag.String("logs", filepath.Join("bin", "tiers"), "folder of the output of each tier")
	limit := flag.Duration("limit", 45*time.Minute, "timeout of one tier, for a machine of a third of the usual speed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "tiers: name the targets to run")
		return 2
	}
	if err := os.MkdirAll(*logs, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, "tiers:", err)
		return 1
	}
	var tiers []*tier
	for _, name := range flag.Args() {
		tiers = append(tiers, &tier{name: name, logs: *logs, limit: *limit, make: "make"})
	}
	began := time.Now()
	done := runAll(ctx, tiers, *lanes, *all, &screen{out: os.Stdout})
	fmt.Printf("\n%d of %d tiers in %s\n", len(done), len(tiers), time.Since(began).Round(time.Second))
	for _, t := range done {
		fmt.Println(t)
	}
	for _, t := range done {
		for _, line := range t.flaky {
			fmt.Println(line)
		}
	}
	lines := summary(done)
	if len(lines) == 0 && len(done) == len(tiers) {
		return 0
	}
	fmt.Println()
	for _, line := range lines {
		fmt.Println(line)
	}
	return 1
}

// runAll runs tiers in their order, lanes of them concurrently, and returns
// the tiers that it ran. It starts no tier after a failure, unless all is set.
func runAll(ctx context.Context, tiers []*tier, lanes int, all bool, out *screen) (done []*tier) {
	var mu sync.Mutex
	next, failed := 0, false
	take := func() *tier {
		mu.Lock()
		defer mu.Unlock()
		if next == len(tiers) || ctx.Err() != nil || failed && !all {
			return nil
		}
		t := tiers[next]
		next++
		done = append(done, t)
		return t
	}
	var wg sync.WaitGroup
	for range lanes {
		wg.Go(func() {
			for t := take(); t != nil; t = take() {
				w := out.of(t.name)
				t.run(ctx, w)
				w.close()
				out.say(t.String())
				mu.Lock()
				failed = failed || t.err != nil
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return done
}
