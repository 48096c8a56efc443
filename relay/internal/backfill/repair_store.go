package backfill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
)

// RepairState is the state of a request to publish an event.
type RepairState string

// The states. RepairAsked and RepairTaken are not final.
const (
	// RepairAsked: not processed yet; the detail contains the reason for a wait.
	RepairAsked RepairState = "asked"
	// RepairTaken: the relay has passed the event to its publisher.
	RepairTaken RepairState = "taken"
	// RepairPublished: the broker has acknowledged the event.
	RepairPublished RepairState = "published"
	// RepairGone: the outbox no longer has the row, or it contains another event.
	RepairGone RepairState = "gone"
	// RepairUnreadable: the row cannot be decoded as an event.
	RepairUnreadable RepairState = "unreadable"
	// RepairUnknown: unknown outcome, as after the relay ended while it published the
	// event. Only the topic shows it.
	RepairUnknown RepairState = "unknown"
)

// Final reports whether the state no longer changes.
func (s RepairState) Final() bool { return s != RepairAsked && s != RepairTaken }

// Repair is a request to publish one event, and the relay's answer.
type Repair struct {
	ID        gocql.UUID // of the request
	Aggregate outbox.ID
	EventID   gocql.UUID
	Sequence  int64
	State     RepairState
	Detail    string
}

// Repairs are the requests to a relay to publish events of a table that are proven to be
// missing from their topics, stored in the table relay_repairs. It is safe for
// concurrent use. After an error a request has its old or its new state.
type Repairs struct {
	session            *gocql.Session
	relay, table, host string
	name               string
	Fence              fence.Fence // checked before answers; optional
}

// NewRepairs returns the requests to a relay about the events of a table. The name of
// the table includes its keyspace; relay_repairs is in the given keyspace.
func NewRepairs(session *gocql.Session, keyspace, relay, table string) *Repairs {
	return &Repairs{session: session, relay: relay, table: table, host: self.Host(), name: keyspace + ".relay_repairs"}
}

func (r *Repairs) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return r.session.Query(stmt, args...).WithContext(ctx).Consistency(gocql.LocalQuorum).DefaultTimestamp(false)
}

// change executes a conditional write, and returns whether it was applied. All writes
// are conditional: a writer with a clock ahead does not hide later writes of others, and
// a delayed write does not change a request that was answered before it.
func (r *Repairs) change(ctx context.Context, stmt string, args ...any) (bool, error) {
	return r.query(ctx, stmt, args...).MapScanCAS(map[string]any{})
}

// Ask requests an event and sets the id of the request. The caller must have read the
// topic of the event to its end without finding it.
func (r *Repairs) Ask(ctx context.Context, req *Repair) error {
	req.ID, req.State, req.Detail = gocql.TimeUUID(), RepairAsked, ""
	_, err := r.change(ctx, "INSERT INTO "+r.name+" (relay, table_name, repair_id, aggregate_id, seq, event_id, state, requested_by, updated_at)"+
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS",
		r.relay, r.table, req.ID, req.Aggregate, req.Sequence, req.EventID, string(req.State), r.host, time.Now())
	if err != nil {
		return fmt.Errorf("request event %s: %w", req.EventID, err)
	}
	return nil
}

// All returns the stored requests, the oldest first.
func (r *Repairs) All(ctx context.Context) ([]Repair, error) {
	iter := r.query(ctx, "SELECT repair_id, aggregate_id, seq, event_id, state, detail FROM "+r.name+" WHERE relay = ? AND table_name = ?", r.relay, r.table).Iter()
	var out []Repair
	for req := (Repair{}); iter.Scan(&req.ID, &req.Aggregate, &req.Sequence, &req.EventID, (*string)(&req.State), &req.Detail); req = (Repair{}) {
		out = append(out, req)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the requests to relay %s: %w", r.relay, err)
	}
	return out, nil
}

// Forget deletes a request.
func (r *Repairs) Forget(ctx context.Context, id gocql.UUID) error {
	if _, err := r.change(ctx, "DELETE FROM "+r.name+" WHERE relay = ? AND table_name = ? AND repair_id = ? IF EXISTS", r.relay, r.table, id); err != nil {
		return fmt.Errorf("delete request %s: %w", id, err)
	}
	return nil
}

// Answer changes the state of a request in state from. It returns false if the request
// has another state, or is deleted.
func (r *Repairs) Answer(ctx context.Context, id gocql.UUID, from, to RepairState, detail string) (bool, error) {
	if err := fence.Check(r.Fence); err != nil {
		return false, err
	}
	applied, err := r.change(ctx, "UPDATE "+r.name+" SET state = ?, detail = ?, updated_at = ? WHERE relay = ? AND table_name = ? AND repair_id = ? IF state = ?",
		string(to), detail, time.Now(), r.relay, r.table, id, string(from))
	if err != nil {
		return false, fmt.Errorf("answer request %s: %w", id, err)
	}
	return applied, nil
}

// Take sets the state to taken. It returns false if the change has no effect: the
// request was answered or deleted, or its timestamp is in the future and hides the
// change, as written by earlier versions with a clock ahead.
func (r *Repairs) Take(ctx context.Context, id gocql.UUID) (bool, error) {
	applied, err := r.Answer(ctx, id, RepairAsked, RepairTaken, "")
	if err != nil || !applied {
		return false, err
	}
	var state RepairState
	err = r.query(ctx, "SELECT state FROM "+r.name+" WHERE relay = ? AND table_name = ? AND repair_id = ?", r.relay, r.table, id).Scan((*string)(&state))
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return false, fmt.Errorf("read the answer to request %s: %w", id, err)
	}
	return state == RepairTaken, nil
}
