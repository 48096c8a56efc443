// Command tiers runs targets of the Makefile, some side by side, says how long
// each took, and ends with what failed in few lines: what a reader of the end of
// a log sees. Tests that failed and passed when they ran again are named too.
//
//	go run ./test/tiers lint test-race     # begins no more after one that failed
//	go run ./test/tiers -k lint test-race  # tries all; so does CI=true
//
// `make test` runs it with all tiers. Their whole output stays in bin/tiers.
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
	all := flag.Bool("k", os.Getenv("CI") == "true", "begin more after a tier that failed")
	lanes := flag.Int("lanes", 2, "how many run side by side: some wait for timers and processes more than they compute")
	logs := flag.String("logs", filepath.Join("bin", "tiers"), "where the output of each tier is kept")
	limit := flag.Duration("limit", 45*time.Minute, "how long one tier may take, also on a machine of a third of the usual speed")
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
	for _, line := range flaky(done) {
		fmt.Println(line)
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

// runAll runs tiers in their order, so many side by side, and returns those that
// it ran. After a failure it begins no more, unless it is to run all.
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
