package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/relay/share"
)

// Resharding changes into how many shards a relay is divided. It implements admin.Resharding.
type Resharding struct {
	Name      string // of the relay
	To        int
	Agreement relay.Agreement
	Control   share.Control

	Agreed int // 0 if none ever was
	state  share.State
	alive  []string

	// Made, if not nil, is told of each step that was made; an error ends everything
	// there, as a kill would.
	Made func(step string) error
}

var (
	// ErrInstancesRun says that instances have to be stopped first.
	ErrInstancesRun = errors.New("instances of the relay run")
	// ErrChangedConcurrently reports that another process has changed the number.
	ErrChangedConcurrently = errors.New("another process has changed the number of shards")
)

// Resharding is the change to so many shards, of the configured relay.
func NewResharding(c *Config, session *gocql.Session, client *kgo.Client, to int) *Resharding {
	return &Resharding{
		Name: c.Relay.Name, To: to,
		Agreement: relay.Agreement{Session: session, Keyspace: c.Scylla.Keyspace, Name: c.Relay.Name},
		Control:   share.Control{Client: client, Name: GroupName(c.Relay.Name), Replication: c.Relay.Replication},
	}
}

// GroupName is the name of the group of instances that share a relay.
func GroupName(name string) string { return "outbox.relay." + name }

// Look finds out how things are.
func (r *Resharding) Look(ctx context.Context) (err error) {
	if r.Agreed, err = r.Agreement.Shards(ctx); err != nil {
		return err
	}
	if r.state, err = r.Control.State(ctx); err != nil {
		return err
	}
	r.alive, err = r.Agreement.Alive(ctx)
	return err
}

// from is the number of shards so far, 0 if the relay was never shared.
func (r *Resharding) from() int {
	if r.Agreed > 0 {
		return r.Agreed
	}
	return r.state.Partitions
}

// isDone reports that there is nothing to do.
func (r *Resharding) isDone() bool { return r.Agreed == r.To && r.state.Partitions == r.To }

// Refuse says who has to be stopped first. Instances that have the new number, as
// after a change that was begun beside them, need not.
func (r *Resharding) Refuse() error {
	if r.state.Partitions == r.To || len(r.state.Members)+len(r.alive) == 0 {
		return nil
	}
	who := append([]string(nil), r.alive...)
	if len(who) == 0 {
		who = append(who, r.state.Members...)
	}
	return reshardError(cli.WithHint(fmt.Errorf("%w: %s", ErrInstancesRun, strings.Join(who, ", ")),
		"stop all instances of relay %s and run this again; one that was killed stays in the broker's group for relay.session_timeout", r.Name))
}

// Close closes the client.
func (r *Resharding) Close() { r.Control.Client.Close() }

// Plan returns the state that Look has found, and the steps that Run will take.
func (r *Resharding) Plan() admin.ReshardPlan {
	p := admin.ReshardPlan{
		Relay: r.Name, From: r.from(), To: r.To, Agreed: r.Agreed, Topic: r.Control.Topic(), Partitions: r.state.Partitions,
		Members: append([]string{}, r.state.Members...), Instances: append([]string{}, r.alive...), Steps: []string{},
	}
	if r.isDone() {
		return p
	}
	p.Steps = append(p.Steps, fmt.Sprintf("agree on %d", r.To))
	switch n := r.state.Partitions; {
	case n == 0:
		p.Steps = append(p.Steps, "make the topic")
	case n < r.To:
		p.Steps = append(p.Steps, fmt.Sprintf("add %s to the topic", cli.Plural(r.To-n, "partition")))
	case n > r.To:
		p.Steps = append(p.Steps, "delete the topic, in which there is nothing", "make it with "+cli.Plural(r.To, "partition"))
	}
	return p
}

func (r *Resharding) step(name string) error {
	if r.Made == nil {
		return nil
	}
	return r.Made(name)
}

// Run makes the change.
//
// First it is agreed on the new number, so an instance of the old one that begins now
// carries nothing any more: it asks when it is in the group. One that was there before
// is seen in the group after that, and then all stays as it was. Only then the topic is
// touched. Wherever this ends, instances of the old number refuse from the first step
// on, and instances of the new one until the last.
func (r *Resharding) Run(ctx context.Context, by string) (err error) {
	defer func() { err = reshardError(err) }()
	if r.Agreed != r.To {
		now, err := r.Agreement.Change(ctx, r.Agreed, r.To, by)
		if err != nil {
			return fmt.Errorf("%w; run this again", err)
		}
		if now != r.To {
			return fmt.Errorf("%w, to %d: run this again", ErrChangedConcurrently, now)
		}
		if err := r.step("agreed"); err != nil {
			return err
		}
	}
	state, err := r.Control.State(ctx)
	if err != nil {
		return fmt.Errorf("%w; run this again", err)
	}
	if len(state.Members) > 0 && state.Partitions != r.To {
		err := fmt.Errorf("%w: one has started, from %s", ErrInstancesRun, strings.Join(state.Members, ", "))
		if _, back := r.Agreement.Change(ctx, r.To, r.Agreed, by); back != nil {
			return fmt.Errorf("%s, and the number is not restored: %w; run this again", err.Error(), back) // not a refusal
		}
		return cli.WithHint(err, "stop all instances of relay %s and run this again", r.Name)
	}
	err = r.stillAgreed(ctx)
	if err == nil {
		err = r.Control.Divide(ctx, r.To, func(step string) error {
			if err := r.step(step); err != nil {
				return err
			}
			return r.stillAgreed(ctx)
		})
	}
	if err != nil && !errors.Is(err, ErrChangedConcurrently) {
		err = fmt.Errorf("it is agreed on %d shards, and no instance works before the topic has as many partitions: %w; run this again", r.To, err)
	}
	return err
}

// stillAgreed returns an error if somebody else has agreed on another number: the topic
// is then theirs to divide.
func (r *Resharding) stillAgreed(ctx context.Context) error {
	now, err := r.Agreement.Shards(ctx)
	if err == nil && now != r.To {
		err = fmt.Errorf("%w, to %d: run this again", ErrChangedConcurrently, now)
	}
	return err
}

// resharder implements admin.Resharder for the configured relay.
type resharder struct {
	c       *Config
	session *gocql.Session
}

// Relay implements admin.Resharder.
func (r resharder) Relay() string { return r.c.Relay.Name }

// Open implements admin.Resharder.
func (r resharder) Open(ctx context.Context, to int) (admin.Resharding, error) {
	client, err := r.c.Kafka.Client()
	if err != nil {
		return nil, reshardError(err)
	}
	o := NewResharding(r.c, r.session, client, to)
	if err = Reachable(ctx, client, r.c.Kafka.Seeds); err == nil {
		err = o.Look(ctx)
	}
	if err != nil {
		client.Close()
		return nil, reshardError(err)
	}
	return o, nil
}

// reshardError returns err as an error of admin.Resharder.
func reshardError(err error) error {
	if err == nil {
		return nil
	}
	return &admin.ReshardError{Err: err, Fix: cli.FindHint(err), Refused: errors.Is(err, ErrInstancesRun) || errors.Is(err, ErrChangedConcurrently)}
}
