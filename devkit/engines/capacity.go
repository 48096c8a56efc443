package engines

import (
	"context"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// capacity models a database of limited capacity: it executes so many writes
// concurrently, each of which takes some time, and more wait.
type capacity struct {
	slots chan struct{}
	takes time.Duration
}

func newCapacity(writes int, takes time.Duration) *capacity {
	return &capacity{slots: make(chan struct{}, writes), takes: takes}
}

// Before delays writes.
func (c *capacity) Before(ctx context.Context, op engine.Op) engine.Verdict {
	if op.Kind == engine.OpRead || op.Kind == engine.OpSerialRead {
		return engine.Verdict{}
	}
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return engine.Verdict{}
	}
	defer func() { <-c.slots }()
	time.Sleep(c.takes)
	return engine.Verdict{}
}
