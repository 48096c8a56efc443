package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// shrinkRuns is how often a smaller plan is tried before it counts as harmless:
// goroutines that are ready at the same moment take turns by chance.
const shrinkRuns = 6

// shrink leaves episodes out of a plan as long as it goes on failing in the same
// way, and prints what is left. The file itself stays.
func (d *driver) shrink(ctx context.Context, name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var plan map[string]any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber() // seeds are large
	if err := dec.Decode(&plan); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	log, failed := d.fails(ctx, plan)
	if !failed {
		return fmt.Errorf("%s does not fail in %d runs", name, shrinkRuns)
	}
	episodes, _ := plan["episodes"].([]any)
	for i := len(episodes) - 1; i >= 0 && ctx.Err() == nil; i-- {
		less := slices.Delete(slices.Clone(episodes), i, i+1)
		plan["episodes"] = less
		if l, failed := d.fails(ctx, plan); failed {
			episodes, log = less, l
			fmt.Fprintf(os.Stderr, "%d episodes are left\n", len(less))
		}
	}
	plan["episodes"] = episodes
	out, err := json.MarshalIndent(plan, "", "  ")
	if err != nil {
		return err
	}
	fmt.Printf("%s\n\n%s\n", out, log)
	return nil
}

// fails says whether a plan fails in any of some runs, and how.
func (d *driver) fails(ctx context.Context, plan map[string]any) (log string, failed bool) {
	b, err := json.Marshal(plan)
	if err != nil {
		return err.Error(), false
	}
	name := filepath.Join(filepath.Dir(d.binary), "plan.json")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		return err.Error(), false
	}
	for range shrinkRuns {
		d.process(ctx, 0, func(r result) {
			if !r.ok {
				log, failed = strings.TrimSpace(r.log), true
			}
		}, "TestKept", "SIM_PLAN="+name)
		if failed {
			return log, true
		}
	}
	return "", false
}
