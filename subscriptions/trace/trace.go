// Package trace reports the state of one message in each subscription of its topic.
//
// # Premises
//
//   - It relies on types and filters that have not changed since the message was read. If one has,
//     the message is shown as the new one selects it.
//   - It relies on answers within 2 seconds. A subscription without one is unknown.
//   - It relies on the schema registry for filters. While that is away, a subscription is asked as if
//     its filter selected the message.
//
// It is a part of the program, and may change in any version.
package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/filter"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

const (
	// parallel is the number of subscriptions that are asked concurrently.
	parallel = 8
	// limit bounds one trace. Subscriptions that have not answered then are unknown.
	limit = 2 * time.Second
)

// Subscriptions is the part of a subscriptions.Service that a trace needs.
type Subscriptions interface {
	List(ctx context.Context) ([]subscriptions.Subscription, error)
	Progress(ctx context.Context, name string, at subscriptions.Place) (subscriptions.Progress, error)
}

// Of returns the state of the message of a record in each subscription of its topic, by
// name. Types and filter are evaluated as they are now, over the payload that schemas decodes; a
// filter is left out while its schema cannot be read. A subscription whose state cannot be read is
// ProgressUnknown. An error means that the subscriptions are not known. The result is
// never nil without an error.
func Of(ctx context.Context, s Subscriptions, schemas *registry.Registry, r *kgo.Record) ([]subscriptions.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	all, err := s.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the subscriptions: %w", err)
	}
	all = slices.DeleteFunc(all, func(s subscriptions.Subscription) bool { return !s.SelectsTopic(r.Topic) })
	slices.SortFunc(all, func(a, b subscriptions.Subscription) int { return cmp.Compare(a.Name, b.Name) })
	out := make([]subscriptions.Progress, len(all))
	e := kafkarecord.Decode(r)
	decidable := !errors.Is(schemas.Decode(ctx, &e), registry.ErrUnavailable)
	at := subscriptions.Place{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, At: kafkarecord.At(r)}
	slots := make(chan struct{}, parallel)
	var asked sync.WaitGroup
	for i := range all {
		if !NewSelector(&all[i]).Selects(r, &e, decidable) {
			out[i] = subscriptions.Progress{Subscription: all[i].Name, State: subscriptions.ProgressNotSelected}
			continue
		}
		asked.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			p, err := s.Progress(ctx, all[i].Name, at)
			if err != nil {
				p = subscriptions.Progress{Subscription: all[i].Name, State: subscriptions.ProgressUnknown, Detail: err.Error()}
			}
			out[i] = p
		})
	}
	asked.Wait()
	return out, nil
}

// Selector decides which records a subscription selects.
type Selector struct {
	subscription *subscriptions.Subscription
	filter       *filter.Expression // nil for none
}

// NewSelector returns the Selector of a subscription.
func NewSelector(s *subscriptions.Subscription) *Selector {
	out := &Selector{subscription: s}
	if strings.TrimSpace(s.Filter) == "" {
		return out
	}
	if f, err := filter.Compile(s.Filter); err == nil {
		out.filter = f
	}
	return out
}

// Selects reports whether the subscription selects a record. A filter that cannot be evaluated
// selects it: the message becomes a dead letter, or waits for the schema registry.
func (s *Selector) Selects(r *kgo.Record, e *kafkarecord.Event, decidable bool) bool {
	typ := ""
	for _, h := range r.Headers {
		if h.Key == outbox.HeaderType {
			typ = string(h.Value)
			break
		}
	}
	if !s.subscription.SelectsType(typ) {
		return false
	}
	if !decidable || s.filter == nil {
		return true
	}
	ok, err := s.filter.Holds(e)
	return ok || err != nil
}
