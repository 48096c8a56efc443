package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// instanceLife is the time after which the report of a process that has stopped expires.
const instanceLife = time.Hour

// Report stores the state of a process that runs a subscription, in place of its last one.
func (s *Store) Report(ctx context.Context, name string, i subscriptions.InstanceStatus) error {
	breaker, err := marshalColumn(i.Breaker, i.Breaker != nil)
	if err != nil {
		return fmt.Errorf("report on subscription %q: %w", name, err)
	}
	err = s.withTimeout(ctx, func(ctx context.Context) error {
		return s.query(ctx, s.stmt.report, name, i.Instance, i.Address, i.At, i.Partitions, cut(i.LastError), breaker, int(instanceLife/time.Second)).Exec()
	})
	if err != nil {
		return fmt.Errorf("report on subscription %q: %w", name, err)
	}
	return nil
}

// Instances returns the last reports of the processes that run a subscription, by name.
// Compare At with the clock: a report expires only an hour after it was written.
func (s *Store) Instances(ctx context.Context, name string) (out []subscriptions.InstanceStatus, err error) {
	err = s.withTimeout(ctx, func(ctx context.Context) error {
		iter := s.query(ctx, s.stmt.instances, name).Iter()
		for {
			var i subscriptions.InstanceStatus
			var breaker string
			if !iter.Scan(&i.Instance, &i.Address, &i.At, &i.Partitions, &i.LastError, &breaker) {
				return iter.Close()
			}
			if i.At = utc(i.At); breaker != "" {
				if err := json.Unmarshal([]byte(breaker), &i.Breaker); err != nil {
					return errors.Join(fmt.Errorf("the breaker of instance %s: %w", i.Instance, err), iter.Close())
				}
			}
			out = append(out, i)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the instances of subscription %q: %w", name, err)
	}
	return out, nil
}
