package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// Random faults overlap.
//
// SIM_FIRST and SIM_SEEDS set the seeds, SIM_KEEP the directory for the plans of failed
// ones. `make sim` tries many.
func TestSeeds(t *testing.T) {
	first, n := seeds.Number(t, "SIM_FIRST", shortSeed), seeds.Number(t, "SIM_SEEDS", 5)
	for seed := first; seed < first+n; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			p := newPlan(seed)
			t.Logf("make sim SEEDS=1 FIRST=%d\n%s", seed, p)
			defer p.keepIfItFails(t, os.Getenv("SIM_KEEP"))()
			p.run(t)
		})
	}
}

// Kept plans are always run. SIM_PLAN runs a single file.
func TestKept(t *testing.T) {
	files, err := filepath.Glob("testdata/seeds/*.json")
	if err != nil {
		t.Fatal(err)
	}
	if one := os.Getenv("SIM_PLAN"); one != "" {
		files = []string{one}
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			p, err := decodePlan(b)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("SIM_PLAN=%s go test ./test/sim -run TestKept\n%s\n%s", name, p.Was, p)
			p.run(t)
		})
	}
}

// run simulates a plan. Package run parses the line that it prints.
func (p *plan) run(t *testing.T) {
	t.Helper()
	var seen outcome
	defer func() {
		line, err := json.Marshal(map[string]any{
			"seed": p.Seed, "ok": !t.Failed(), "events": seen.events, "relays": seen.relays, "repeated_rows": seen.repeatedRows,
			"duplicates": seen.duplicates, "late_duplicates": seen.late, "letters": seen.deadLetters, "replayed": seen.replayed, "discarded": seen.discarded, "virtual_seconds": int64(seen.simulated.Seconds()),
		})
		if err != nil {
			t.Error(err)
		}
		fmt.Printf("sim-result %s\n", line)
	}()
	defer watchForStall(p.Seed)()
	seen = simulate(t, p.Seed, p.settings, p.carryOut)
}

// keepIfItFails writes the plan to dir and returns a function that removes it unless the
// test has failed. A failure may end the process.
func (p *plan) keepIfItFails(t *testing.T, dir string) (done func()) {
	t.Helper()
	if dir == "" {
		return func() {}
	}
	name := filepath.Join(dir, fmt.Sprint(p.Seed, ".json"))
	if err := os.WriteFile(name, p.encode(), 0o644); err != nil {
		t.Fatal(err)
	}
	return func() {
		if !t.Failed() {
			_ = os.Remove(name)
		}
	}
}

// A kept plan survives encoding.
func TestPlan_IsKept(t *testing.T) {
	met := make(map[string]bool)
	for seed := range uint64(300) {
		p := newPlan(seed)
		again, err := decodePlan(p.encode())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(p.encode(), again.encode()) || !bytes.Equal(p.encode(), newPlan(seed).encode()) {
			t.Fatalf("the plan of seed %d:\n%s\nread back:\n%s", seed, p.encode(), again.encode())
		}
		for _, e := range p.Episodes {
			met[e.Kind] = true
		}
	}
	for _, k := range kinds {
		if k.when == nil && !met[k.name] {
			t.Errorf("none of 300 seeds has %q", k.name)
		}
	}
}
