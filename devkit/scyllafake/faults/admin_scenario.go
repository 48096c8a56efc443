package faults

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// scenarioJSON contains the parameters of scenarios; each scenario uses some of them.
type scenarioJSON struct {
	// Later contains the delays of delayed applications.
	Later []duration `json:"later,omitempty"`
	// In is the time until the generation starts, or until the joining node has one.
	In duration `json:"in,omitempty"`
	// Decided makes the round of a conditional write that times out decided.
	Decided bool `json:"decided,omitempty"`
	// Delay, Keyspace, Table, Skip and Count replace the fields of the scenario's rule.
	Delay    *duration `json:"delay,omitempty"`
	Keyspace string    `json:"keyspace,omitempty"`
	Table    string    `json:"table,omitempty"`
	Skip     int       `json:"skip,omitempty"`
	Count    *int      `json:"count,omitempty"`
}

// scenario is a named rule.
type scenario struct {
	about string
	make  func(in *Injector, j scenarioJSON) (Rule, error)
}

var scenarios = map[string]scenario{
	"batchlog-replay": {
		"the next logged batch times out with BATCH; it is applied after each delay in later",
		func(_ *Injector, j scenarioJSON) (Rule, error) { return BatchlogReplay(durations(j.Later)...), nil },
	},
	"batchlog-timeout": {
		"the next logged batch times out with BATCH_LOG; it is applied after each delay in later",
		func(_ *Injector, j scenarioJSON) (Rule, error) { return BatchLogTimeout(durations(j.Later)...), nil },
	},
	"coordinator-crash": {
		"the connection of the next logged batch is lost; it is applied after each delay in later",
		func(_ *Injector, j scenarioJSON) (Rule, error) { return CoordinatorCrash(durations(j.Later)...), nil },
	},
	"batchlog-replay-across-generation": {
		"the next logged batch times out, a generation starts after in, and the replay comes after later: in 5.1 it fails forever",
		func(_ *Injector, j scenarioJSON) (Rule, error) {
			if len(j.Later) != 1 || j.In <= 0 || j.Later[0] <= j.In {
				return Rule{}, fmt.Errorf(`set in and one longer delay in later: {"in": "1s", "later": ["2s"]}`)
			}
			return BatchlogReplayAcrossGeneration(time.Duration(j.In), time.Duration(j.Later[0])), nil
		},
	},
	"cas-timeout": {
		"the next conditional write times out with CAS; if decided it is visible with the next conditional or SERIAL operation",
		func(_ *Injector, j scenarioJSON) (Rule, error) { return CASTimeout(j.Decided), nil },
	},
	"cas-across-generation": {
		"the next conditional write times out, decided, and a generation starts after in; its partition is blocked until CDC is turned off",
		func(_ *Injector, j scenarioJSON) (Rule, error) {
			if j.In <= 0 {
				return Rule{}, fmt.Errorf(`set in: {"in": "1s"}`)
			}
			return CASAcrossGeneration(time.Duration(j.In)), nil
		},
	},
	"frozen-replica": {
		"the second of two replicas does not respond; logged batches are applied after the delay in later, if any",
		func(_ *Injector, j scenarioJSON) (Rule, error) {
			switch len(j.Later) {
			case 0:
				return FrozenReplica(-1), nil
			case 1:
				return FrozenReplica(time.Duration(j.Later[0])), nil
			}
			return Rule{}, fmt.Errorf("later: use one delay at most")
		},
	},
	"down-replica": {
		"the second of two replicas counts as down",
		func(*Injector, scenarioJSON) (Rule, error) { return DownReplica(), nil },
	},
	"joining-node": {
		"writes to tables with CDC fail until the node's first generation starts, after in",
		func(in *Injector, j scenarioJSON) (Rule, error) {
			if in.clock == nil || j.In <= 0 {
				return Rule{}, fmt.Errorf(`set in: {"in": "9s"}`)
			}
			return in.JoiningNode(in.clock.Now().Add(time.Duration(j.In))), nil
		},
	},
}

func scenarioHelp() map[string]string {
	out := map[string]string{}
	for name, s := range scenarios {
		out[name] = s.about
	}
	return out
}

func (in *Injector) postScenario(r *http.Request) (any, error) {
	name := r.PathValue("name")
	s, ok := scenarios[name]
	if !ok {
		return nil, fmt.Errorf("scenario %q: %w; there are %s", name, errNotFound,
			strings.Join(slices.Sorted(maps.Keys(scenarios)), ", "))
	}
	var j scenarioJSON
	if err := readJSON(r, &j); err != nil {
		return nil, err
	}
	rule, err := s.make(in, j)
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", name, err)
	}
	rule.Match.Keyspace, rule.Match.Table, rule.Skip = j.Keyspace, j.Table, j.Skip
	if j.Delay != nil {
		if rule.Effect.Decide != nil {
			return nil, fmt.Errorf("scenario %s: its delays are those of a real node", name)
		}
		rule.Effect.Delay = time.Duration(*j.Delay)
	}
	if j.Count != nil {
		rule.Count = *j.Count
	}
	id, err := in.Add(rule)
	return idJSON{id}, err
}
