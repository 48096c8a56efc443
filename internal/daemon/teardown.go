package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Teardown is a stack of things to close. Register each as soon as it is acquired; Run
// closes them last in, first out. It is safe for concurrent use.
type Teardown struct {
	// Logger receives a Debug line per step; nil logs nothing.
	Logger *slog.Logger

	mu    sync.Mutex
	steps []step
}

type step struct {
	name  string
	close func() error
}

// Add registers a step under a name for errors and logs.
func (t *Teardown) Add(name string, closer func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps = append(t.steps, step{name, closer})
}

// AddFunc registers a step that cannot fail.
func (t *Teardown) AddFunc(name string, closer func()) {
	t.Add(name, func() error { closer(); return nil })
}

// Run closes everything, newest first, and joins the errors. A second Run does nothing.
func (t *Teardown) Run() error {
	t.mu.Lock()
	steps := t.steps
	t.steps = nil
	t.mu.Unlock()
	var errs []error
	for i := len(steps) - 1; i >= 0; i-- {
		s := steps[i]
		began := time.Now()
		if err := s.close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", s.name, err))
		}
		if t.Logger != nil {
			t.Logger.Debug("closed", "what", s.name, "took", time.Since(began))
		}
	}
	return errors.Join(errs...)
}
