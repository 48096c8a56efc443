package sim

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

const (
	// wrongBy is the maximum clock error of a remote operator, in seconds.
	wrongBy = 300
	// askPatience limits one operation of a remote operator.
	askPatience = 30 * time.Second
)

// remote is an operator on a host whose clock is wrong and set repeatedly.
type remote struct {
	w           *world
	clock       scyllatest.Clock
	session     *session
	deadLetters *dlq.Store
	repairs     *relay.Repairs
}

// newRemote returns nil while the database is unavailable.
func (w *world) newRemote() *remote {
	o := &remote{w: w}
	<-w.database
	if !w.net.isAway(database) && !w.frozen {
		o.session = w.connectBy(&o.clock, "remote operator", keyspace)
	}
	w.database <- struct{}{}
	if o.session == nil {
		return nil
	}
	var err error
	if o.deadLetters, err = dlq.Open(o.session.Session, keyspace, dlq.WithClock(&o.clock)); err != nil {
		w.t.Errorf("open the dead letters: %v", err)
	}
	o.repairs = relay.NewRepairs(o.session.Session, keyspace, cmp.Or(w.settings.relay.Name, relay.Defaults().Name), keyspace+"."+events)
	return o
}

// work executes one operation and ignores failures.
func (o *remote) work(rnd *rand.Rand) {
	if rnd.IntN(3) == 0 {
		o.clock.Set(seconds(rnd, wrongBy))
	}
	if rnd.IntN(2) == 0 {
		o.w.operate(rnd, o.deadLetters)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), askPatience)
	defer cancel()
	asked, err := o.repairs.All(ctx)
	if err != nil {
		return
	}
	for _, q := range asked {
		if q.State.Final() {
			_ = o.repairs.Forget(ctx, q.ID)
		}
	}
	if missing := o.missing(ctx); len(missing) > 0 && len(asked) < 5 {
		_ = o.repairs.Ask(ctx, &missing[rnd.IntN(len(missing))])
		o.w.mu.Lock()
		o.w.seen.asked++
		o.w.mu.Unlock()
	}
}

// missing returns the events of the outbox, older than the confidence window, that are
// neither dead letters nor in their topics, which it reads afterwards.
func (o *remote) missing(ctx context.Context) (out []relay.Repair) {
	iter := o.session.Query("SELECT aggregate_id, seq, event_id, WRITETIME(event_id) FROM " + events).WithContext(ctx).Iter()
	rows := make(map[gocql.UUID]relay.Repair)
	var q relay.Repair
	for written := int64(0); iter.Scan(&q.Aggregate, &q.Sequence, &q.EventID, &written); {
		if o.w.clock.Now().Sub(time.UnixMicro(written)) > cmp.Or(o.w.settings.relay.ConfidenceWindow, relay.Defaults().ConfidenceWindow)+time.Minute {
			rows[q.EventID] = q
		}
	}
	err := iter.Close()
	iter = o.session.Query("SELECT event_id FROM " + deadLetters).WithContext(ctx).Iter()
	for iter.Scan(&q.EventID) {
		delete(rows, q.EventID)
	}
	if errors.Join(err, iter.Close()) != nil {
		return nil
	}
	for _, r := range o.w.tap.all(o.w.kafka) {
		delete(rows, r.ID.UUID())
	}
	for _, q := range rows {
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b relay.Repair) int {
		return cmp.Or(cmp.Compare(a.Aggregate.String(), b.Aggregate.String()), cmp.Compare(a.Sequence, b.Sequence))
	})
	return out
}
