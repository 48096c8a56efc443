package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// result is what came of one seed.
type result struct {
	seed uint64
	ok   bool
	// undecided means that virtual time stopped in a client library (sim's watchForStall).
	undecided bool
	log       string
	tally
}

// tally counts what was simulated. Its fields are the ones of the lines that the
// simulation prints.
type tally struct {
	Runs        int   `json:"-"`
	Undecided   int   `json:"-"`
	Events      int   `json:"events"`
	Relays      int   `json:"relays"`
	Repeated    int   `json:"repeated_rows"`
	Duplicates  int   `json:"duplicates"`
	Late        int   `json:"late_duplicates"`
	DeadLetters int   `json:"letters"`
	Replayed    int   `json:"replayed"`
	Discarded   int   `json:"discarded"`
	Virtual     int64 `json:"virtual_seconds"`
	// WithDeadLetters and WithReplays are how many runs had any.
	WithDeadLetters int `json:"-"`
	WithReplays     int `json:"-"`
}

func (t *tally) add(r result) {
	t.Runs++
	if r.undecided {
		t.Undecided++
	}
	t.Events += r.Events
	t.Relays += r.Relays
	t.Repeated += r.Repeated
	t.Duplicates += r.Duplicates
	t.Late += r.Late
	t.DeadLetters += r.DeadLetters
	t.Replayed += r.Replayed
	t.Discarded += r.Discarded
	t.Virtual += r.Virtual
	if r.DeadLetters > 0 {
		t.WithDeadLetters++
	}
	if r.Replayed > 0 {
		t.WithReplays++
	}
}

// String says it in words.
func (t tally) String() string {
	return fmt.Sprintf("%d days simulated, %d relays, %d events, %d log rows repeated, %d duplicates where the relay may not read back, %d duplicates of requests that were held back, %d dead letters in %d runs, %d replayed in %d runs, %d discarded",
		t.Virtual/86400, t.Relays, t.Events, t.Repeated, t.Duplicates-t.Late, t.Late, t.DeadLetters, t.WithDeadLetters, t.Replayed, t.WithReplays, t.Discarded)
}

// shownFirst and shownLast are how many lines of a failure are shown: the plan, and what is wrong.
const shownFirst, shownLast = 40, 60

// seedsIn tries seeds in one process and calls each with every result. The plans
// of failed seeds are kept in a folder, unless it is "".
func (d *driver) seedsIn(ctx context.Context, from, to uint64, keep string, each func(result)) {
	d.process(ctx, from, each, "TestSeeds", fmt.Sprint("SIM_FIRST=", from), fmt.Sprint("SIM_SEEDS=", to-from), "SIM_KEEP="+keep)
}

// process runs a test in a process of its own. If it dies, the seed under way
// has failed; first is the one that is under way at the start.
func (d *driver) process(ctx context.Context, first uint64, each func(result), test string, env ...string) {
	cmd := exec.CommandContext(ctx, d.binary, "-test.run", "^"+test+"$", "-test.v", "-test.timeout", "0")
	cmd.Dir = "test/sim"
	// Each process gets one core: goroutines in a bubble wait for each other, so more cores
	// only add scheduling. With a lazier collector a seed takes less than half the CPU time.
	cmd.Env = append(append(os.Environ(), "GOMAXPROCS=1", "GOGC=1600", "GOMEMLIMIT=1GiB"), env...)
	out, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		each(result{seed: first, log: err.Error()})
		return
	}
	slow := time.AfterFunc(d.patience, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	defer slow.Stop()
	go func() { w.CloseWithError(cmd.Wait()) }()
	current, open := first, true
	var log []string
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Text()
		if _, text, ok := strings.Cut(line, "sim-result "); ok {
			r := result{log: strings.Join(log, "\n")}
			var body struct {
				Seed      uint64 `json:"seed"`
				OK        bool   `json:"ok"`
				Undecided bool   `json:"undecided"`
				tally
			}
			if err := json.Unmarshal([]byte(text), &body); err != nil {
				r.log += "\n" + err.Error() + ": " + text
			}
			r.seed, r.ok, r.undecided, r.tally = body.Seed, body.OK, body.Undecided, body.tally
			each(r)
			slow.Reset(d.patience)
			log, open = nil, false
			continue
		}
		if strings.HasPrefix(line, "=== RUN ") && strings.Contains(line, "seed=") {
			if !open {
				current++
			}
			open = true
		}
		if log = append(log, line); len(log) > shownFirst+shownLast {
			log = slices.Delete(log, shownFirst, shownFirst+1)
		}
	}
	if open && ctx.Err() == nil {
		each(result{seed: current, log: strings.Join(log, "\n")})
	}
}
