// Package budget limits the events that were read and are not yet acknowledged.
//
// It relies on every event that took room giving it back: when it is acknowledged or a dead letter,
// or when it is left to wait in the log. Events that do neither fill it, and nothing is published.
package budget

import (
	"context"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"golang.org/x/sync/semaphore"
)

// Budget limits the number and the bytes of events that were read and are not yet
// acknowledged. It applies backpressure: readers that wait for room slow down when the
// broker is slow and stop when it is unavailable. It is safe for concurrent use.
type Budget struct {
	records, bytes *semaphore.Weighted
	maxBytes       int64
}

// New returns a budget of the given number of events and bytes.
func New(records int, bytes int64) *Budget {
	return &Budget{
		records:  semaphore.NewWeighted(int64(records)),
		bytes:    semaphore.NewWeighted(bytes),
		maxBytes: bytes,
	}
}

// Take waits for room for one event of n bytes. An event larger than the whole budget
// takes all of it. If ctx ends first, Take returns its cause and takes nothing.
func (b *Budget) Take(ctx context.Context, n int64) error {
	if err := b.records.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	if err := b.bytes.Acquire(ctx, min(n, b.maxBytes)); err != nil {
		b.records.Release(1)
		return context.Cause(ctx)
	}
	return nil
}

// Try takes room for one event of n bytes if there is room and no caller waits for it. It
// reports whether it did.
func (b *Budget) Try(n int64) bool {
	if !b.records.TryAcquire(1) {
		return false
	}
	if !b.bytes.TryAcquire(min(n, b.maxBytes)) {
		b.records.Release(1)
		return false
	}
	return true
}

// Give releases the room of one event of n bytes.
func (b *Budget) Give(n int64) {
	b.records.Release(1)
	b.bytes.Release(min(n, b.maxBytes))
}

// EventSize returns the memory that an event uses, in bytes, as the budget counts it.
func EventSize(e *outbox.Event) int64 {
	size := int64(len(e.Payload)) + 512
	for k, v := range e.Headers {
		size += int64(len(k) + len(v))
	}
	return size
}
