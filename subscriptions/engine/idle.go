package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// NewIdle returns an Engine that runs no subscriptions, and for which Run is not called. It changes
// subscriptions in the database and reads their positions in Kafka with a client, which the caller
// closes. It owns no partition, so it has no messages and no leases: Receive and Settle return
// ErrUnavailable, and Purge removes none.
func NewIdle(cfg Config, adm *kadm.Client) (*Engine, error) {
	if adm == nil {
		return nil, errors.New("subscriptions: a Kafka client is required")
	}
	e, err := New(cfg)
	if err == nil {
		e.idle = adm
	}
	return e, err
}

// idleGroup returns the group of a subscription that an idle engine does not run.
func (e *Engine) idleGroup(ctx context.Context, name string) (*group, error) {
	r, err := e.cfg.Store.Get(ctx, name)
	if err != nil {
		return nil, unavailable(err)
	}
	g := &group{e: e, name: r.Name, incarnation: r.Incarnation(), adm: e.idle, log: e.cfg.Logger.With("subscription", r.Name)}
	g.resource.Store(&r)
	return g, nil
}

// errIdle is the error of requests for messages of an idle engine.
var errIdle = fmt.Errorf("this process runs no subscriptions: %w", subscriptions.ErrUnavailable)
