package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// Redelivery is a slice of the settled messages of a subscription, to deliver to it once more.
type Redelivery struct {
	Subscription string `json:"subscription"`
	Slice
}

// Slice selects messages by all criteria that are set. Key, Filter or Since is required.
type Slice struct {
	// Topic limits it to one topic of the subscription.
	Topic string `json:"topic,omitempty" maxLength:"249" doc:"Only this topic of the subscription"`
	// Key is the key of the records.
	Key string `json:"key,omitempty" maxLength:"1000" doc:"Messages whose record has this key, all of it"`
	// Filter is an expression as in the filter of a subscription.
	Filter string `json:"filter,omitempty" maxLength:"4000" doc:"Messages for which this CEL expression over the event is true, as in the filter of a subscription"`
	// Since and Until bound the times of the records; Until itself is not in.
	Since time.Time `json:"since,omitempty,omitzero" doc:"Messages whose record is of this time or later"`
	Until time.Time `json:"until,omitempty,omitzero" doc:"Messages whose record is of an earlier time; default and latest is the time of the request"`
}

// SliceError is a slice that cannot be redelivered as it is: to repeat it does not help.
type SliceError struct {
	// Field is the criterion, as in JSON; empty for the slice as a whole. Problem contains the fix.
	Field, Problem string
}

// Error returns the field and the problem.
func (e *SliceError) Error() string {
	if e.Field == "" {
		return e.Problem
	}
	return e.Field + ": " + e.Problem
}

// ErrTopics reports that the topics of a redelivery cannot be read: its job pauses.
var ErrTopics = errors.New("the topics cannot be read")

// Reading is how far the dead letters of a redelivery are made.
type Reading struct {
	// Records were read; a second pass reads the records of the messages again.
	Records int64 `json:"records" doc:"Records that were read to find the messages"`
	// Messages are to be redelivered, and Written of them have a dead letter.
	Messages int `json:"messages" doc:"Messages to redeliver; 0 until all records are read"`
	Written  int `json:"written" doc:"Messages that have a dead letter, which the job replays"`
}

// Redeliverer makes the dead letters of a redelivery; package subscriptions/redeliver implements
// it.
type Redeliverer interface {
	// Redeliver writes the dead letters of a slice, unless they are written, and returns their ids,
	// at least one, in the order of delivery. It calls seen with its progress, and never
	// concurrently. After an error it may be repeated, unless a *SliceError is in the chain.
	Redeliver(ctx context.Context, r *Redelivery, by dlq.Actor, seen func(Reading)) ([]gocql.UUID, error)
}

// errNoRedeliverer reports that a process cannot make the dead letters of a redelivery.
var errNoRedeliverer = errors.New("this process reads no topics, and the job begins with it: 'outbox admin' runs it")

// prepare makes the dead letters of a redelivery and stores their ids. After a crash it is
// repeated: it writes the missing ones.
func (w *worker) prepare(ctx context.Context) error {
	j := w.j
	var ids []gocql.UUID
	err := w.during(ctx, func(ctx context.Context) (err error) {
		ids, err = w.cfg.Redeliverer.Redeliver(ctx, j.Redelivery, j.by(), func(r Reading) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.mu.reading = &r
		})
		return err
	})
	if _, ok := errors.AsType[*SliceError](err); ok {
		return w.finish(ctx, Failed, err)
	}
	if err != nil {
		return fmt.Errorf("make the dead letters: %w", err)
	}
	if w.j.State != Running {
		return nil
	}
	return w.save(ctx, func(j *Job) {
		if j.State == Running { // not paused or cancelled
			j.IDs, j.InOrder, j.prepared = unique(ids), true, true
			j.Progress.Total = len(j.IDs)
		}
	})
}
