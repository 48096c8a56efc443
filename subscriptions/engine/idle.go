package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Idle is the Service of a process that runs no subscriptions. It changes subscriptions in
// the database and reads their positions in Kafka; it owns no partition, so it has no
// messages: Receive and Settle return ErrUnavailable, and Purge removes none.
type Idle struct {
	*Engine
	adm *kadm.Client
}

var _ subscriptions.Service = (*Idle)(nil)

// NewIdle returns an Idle that reads positions with a client, which the caller closes.
func NewIdle(cfg Config, adm *kadm.Client) (*Idle, error) {
	if adm == nil {
		return nil, errors.New("subscriptions: a Kafka client is required")
	}
	e, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return &Idle{e, adm}, nil
}

// Status returns the state of a subscription by its positions. Partitions have no owner.
func (i *Idle) Status(ctx context.Context, name string) (subscriptions.Status, error) {
	g, err := i.group(ctx, name)
	if err != nil {
		return subscriptions.Status{}, err
	}
	return i.status(ctx, g)
}

// group returns a group that owns no partition.
func (i *Idle) group(ctx context.Context, name string) (*group, error) {
	r, err := i.cfg.Store.Get(ctx, name)
	if err != nil {
		return nil, unavailable(err)
	}
	g := &group{e: i.Engine, name: r.Name, incarnation: r.Incarnation(), adm: i.adm}
	g.resource.Store(&r)
	return g, nil
}

// Leases returns none, as an instance without partitions.
func (i *Idle) Leases(ctx context.Context, name, _ string, _ int) (subscriptions.LeasePage, error) {
	_, err := i.cfg.Store.Get(ctx, name)
	return subscriptions.LeasePage{}, unavailable(err)
}

// EndLease finds no lease, as an instance without partitions.
func (i *Idle) EndLease(ctx context.Context, name string, lease subscriptions.LeaseID, _ subscriptions.Action, _ string) error {
	r, err := i.cfg.Store.Get(ctx, name)
	if err != nil {
		return unavailable(err)
	}
	if err := r.CheckEndLease(); err != nil {
		return err
	}
	return fmt.Errorf("lease %s: %w", lease, subscriptions.ErrLeaseEnded)
}

// Seek stores the wish, as that of an Engine.
func (i *Idle) Seek(ctx context.Context, name string, s subscriptions.Seek, principal string) error {
	g, err := i.group(ctx, name)
	if err == nil && s.To == "offset" {
		err = g.checkOffset(ctx, &s)
	}
	if err != nil {
		return err
	}
	_, err = i.cfg.Store.Seek(ctx, name, s, principal)
	return unavailable(err)
}

// Purge records the purge and returns 0, as an instance without partitions.
func (i *Idle) Purge(ctx context.Context, name string, req subscriptions.Purge, principal string) (int64, error) {
	if _, err := i.cfg.Store.Get(ctx, name); err != nil || req.DryRun {
		return 0, unavailable(err)
	}
	return 0, unavailable(i.cfg.Store.NotePurge(ctx, name, cmp.Or(req.Before, time.Now()), principal))
}
