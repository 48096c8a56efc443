package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const (
	// saveEvery is the minimum time between two saves of a position.
	saveEvery = time.Minute
	// takeEvery is the interval at which a standby tries to take the duty.
	takeEvery = 30 * time.Second
)

// Duty selects one of several processes; *dlq.Duty implements it.
type Duty interface {
	// Hold calls f while this process has the duty. It does not call f if another process
	// has it.
	Hold(ctx context.Context, f func(context.Context) error) error
	// State returns the last saved state of any process.
	State(ctx context.Context) (string, error)
	// Save returns false, and saves nothing, if this process no longer has the duty.
	Save(ctx context.Context, state string) (bool, error)
}

// PassState is the state of the verification of a table.
type PassState struct {
	// Ranges is the number of token ranges of the current pass. The first Done of them
	// are verified up to the write time Until, and no event in them is missing.
	Ranges int       `json:"ranges"`
	Done   int       `json:"done,omitempty"`
	Until  time.Time `json:"until,omitzero"`
	// Began is the start of the current or last pass.
	Began time.Time `json:"began"`
	// LastPass is the end of the last full pass, zero if there was none, and Verified the
	// write time up to which it checked all rows.
	LastPass time.Time `json:"last_pass,omitzero"`
	Verified time.Time `json:"verified,omitzero"`
	// Missing is the number of missing events.
	Missing int `json:"missing,omitempty"`
}

// ReadPasses returns the saved progress by table; empty if no verifier ever ran.
func ReadPasses(ctx context.Context, duty Duty) (map[string]*PassState, error) {
	text, err := duty.State(ctx)
	out := make(map[string]*PassState)
	if err == nil && text != "" {
		if err = json.Unmarshal([]byte(text), &out); err != nil {
			err = fmt.Errorf("state of the verification: %w", err)
		}
	}
	return out, err
}

// Run verifies until ctx ends, while this process has the duty.
func (v *Verifier) Run(ctx context.Context) {
	if v.cfg.Duty == nil {
		v.passes(ctx)
		return
	}
	for ctx.Err() == nil {
		err := v.cfg.Duty.Hold(ctx, func(ctx context.Context) error {
			if err := v.load(ctx); err != nil {
				return err
			}
			v.log.Info("this process verifies the outbox")
			defer v.standBy()
			v.passes(ctx)
			return context.Cause(ctx)
		})
		if err != nil && ctx.Err() == nil {
			v.log.Warn("verification is interrupted", "wait", takeEvery, "err", err)
		}
		select {
		case <-time.After(takeEvery):
		case <-ctx.Done():
		}
	}
}

// load takes over the progress of the process that had the duty before.
func (v *Verifier) load(ctx context.Context) error {
	saved, err := ReadPasses(ctx, v.cfg.Duty)
	if err != nil {
		return err
	}
	for i := range v.cfg.Tables {
		name := v.cfg.Tables[i].name()
		p := saved[name]
		if p == nil {
			p = new(PassState)
		}
		v.progress[name] = p
		v.metrics.missing.WithLabelValues(name).Set(float64(p.Missing))
		v.metrics.setLastPass(name, p)
	}
	return nil
}

// standBy removes the metrics of events and passes, which the process with the duty
// reports.
func (v *Verifier) standBy() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.missing {
		clear(v.missing[i])
	}
	v.metrics.missing.Reset()
	v.metrics.until.Reset()
	v.metrics.lastPass.Reset()
}

// save keeps the progress of all tables for a restart.
func (v *Verifier) save(ctx context.Context) error {
	if v.cfg.Duty == nil {
		return nil
	}
	text, err := json.Marshal(v.progress)
	if err != nil {
		return err
	}
	mine, err := v.cfg.Duty.Save(ctx, string(text))
	if err == nil && !mine {
		err = errors.New("another process verifies")
	}
	if err != nil {
		return fmt.Errorf("save the progress: %w", err)
	}
	v.saved = time.Now()
	return nil
}

// resume returns the first range of the pass.
func (p *pass) resume() int {
	at := p.v.progress[p.t.name()]
	if at.Ranges == p.all && at.Done > 0 && at.Done < p.all {
		p.until = at.Until
		return at.Done
	}
	*at = PassState{Ranges: p.all, Began: time.Now().UTC(), LastPass: at.LastPass, Verified: at.Verified, Missing: at.Missing}
	return 0
}

// recordVerified records that the first done ranges are verified, unless there are suspects.
func (p *pass) recordVerified(ctx context.Context, done int) error {
	if len(p.suspects) > 0 || p.lostAll > 0 {
		return nil
	}
	at := p.v.progress[p.t.name()]
	at.Done, at.Until = done, p.earliest(time.UnixMicro(p.limit)).UTC()
	if time.Since(p.v.saved) < saveEvery {
		return nil
	}
	return p.v.save(ctx)
}

// earliest returns the write time up to which all ranges so far are checked, including
// the ones of the current segment.
func (p *pass) earliest(passed time.Time) time.Time {
	if p.until.IsZero() || passed.Before(p.until) {
		return passed
	}
	return p.until
}

// recordFinished records a full pass.
func (p *pass) recordFinished(ctx context.Context, missing int) error {
	at := p.v.progress[p.t.name()]
	*at = PassState{Ranges: p.all, Began: at.Began, LastPass: time.Now().UTC(), Verified: p.until.UTC(), Missing: missing}
	p.v.metrics.setLastPass(p.t.name(), at)
	return p.v.save(ctx)
}
