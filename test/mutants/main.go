// Command mutants breaks the code in one place at a time and expects a test to detect it.
//
//	go run ./test/mutants ./relay/internal/fence      # every mutant of a package
//	go run ./test/mutants -n 1000 -seed 7             # a sample of all packages
//	go run ./test/mutants -changed main -n 60 -near   # a sample of the changed lines
//
// The mutants are chosen by the operators of operators.go, so no text of the code is repeated
// here and a refactoring edits nothing. All mutants of a package are compiled into one test
// binary, in which a variable of the environment turns one of them on: the compiler runs once
// for a package instead of once for a mutant. Tests first run alone, to record which mutants
// each reaches; a mutant then runs the tests that reach it, the fastest first.
//
// First run the tests of the mutant's own package, then those of the packages that distant
// lists, unless -near leaves them out. The tree is not modified: the compiler reads the changed
// files from an overlay. The result of each mutant is written to bin/mutants.jsonl, so that an
// interrupted run resumes: a mutant runs again once its package or a package of its tests
// changes.
//
// The exit status is 1 if fewer than -detect percent of the mutants were detected.
// accepted.txt lists the survivors that change no behaviour a test could notice.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// options are the flags of the command.
type options struct {
	changed   string
	most      int
	seed      uint64
	near      bool
	detect    float64
	processes int
	results   string
	again     bool
	list      bool
	verbose   bool
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.StringVar(&o.changed, "changed", "", "only mutants of lines that changed since this commit")
	flags.IntVar(&o.most, "n", 0, "number of mutants to draw; 0 is all")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the draw")
	flags.BoolVar(&o.near, "near", false, "run only the tests of the mutant's own package")
	flags.Float64Var(&o.detect, "detect", 100, "least percentage of mutants that tests must detect")
	flags.IntVar(&o.processes, "processes", runtime.NumCPU(), "number of concurrent tests")
	flags.StringVar(&o.results, "results", filepath.Join("bin", "mutants.jsonl"), "file of the results")
	flags.BoolVar(&o.again, "again", false, "run also mutants with a result")
	flags.BoolVar(&o.list, "list", false, "list the mutants, run none")
	flags.BoolVar(&o.verbose, "v", false, "print also detected mutants")
	if err := flags.Parse(args); err != nil {
		return err
	}
	accepted, err := readAccepted(filepath.Join("test", "mutants", "accepted.txt"))
	if err != nil {
		return err
	}
	packages, err := loadPackages(ctx, flags.Args(), o.changed)
	if err != nil {
		return err
	}
	var chosen []*mutant
	for _, p := range packages {
		chosen = append(chosen, p.mutants...)
	}
	all := len(chosen)
	chosen = slices.DeleteFunc(chosen, func(m *mutant) bool { return accepted.has(m) })
	if o.changed == "" {
		for _, name := range accepted.unused(packages) {
			fmt.Fprintln(out, "accepted.txt names no mutant:", name)
		}
	}
	chosen = draw(chosen, o.most, o.seed)
	if o.list {
		for _, m := range chosen {
			fmt.Fprintf(out, "%s:%d\t%s\n", m.file, m.line, m.name())
		}
		return nil
	}
	before, err := openResults(o.results)
	if err != nil {
		return err
	}
	defer before.close()
	began := time.Now()
	r := &runner{options: o, out: out, results: before}
	if err := r.runAll(ctx, chosen); err != nil {
		return err
	}
	if len(r.failed) > 0 {
		return fmt.Errorf("tests fail without a mutant: %s", strings.Join(r.failed, ", "))
	}
	detected := r.counts[noticed] + r.counts[hung]
	share := 100.0
	if len(chosen) > 0 {
		share = 100 * float64(detected) / float64(len(chosen))
	}
	fmt.Fprintf(out, "%d of %d mutants ran (%d had a result), %d detected (%.1f %%), %d survived, %d reached by no test; %s\n",
		len(chosen), all, r.known, detected, share, r.counts[survived], r.counts[unreached], time.Since(began).Round(time.Second))
	if share < o.detect {
		return fmt.Errorf("%.1f %% of the mutants were detected, want at least %g %%: write the test that notices, or add an equivalent mutant to test/mutants/accepted.txt", share, o.detect)
	}
	return nil
}
