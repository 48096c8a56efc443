package backfill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
)

// RepairState is what became of a request to publish an event.
type RepairState string

// The states. The first two may change still.
const (
	// RepairAsked: no relay has come to it, or it says in the detail why it waits.
	RepairAsked RepairState = "asked"
	// RepairTaken: the relay has handed the event to its publisher.
	RepairTaken RepairState = "taken"
	// RepairPublished: the broker has acknowledged the event.
	RepairPublished RepairState = "published"
	// RepairGone: the outbox has no such row any more, or another event in it.
	RepairGone RepairState = "gone"
	// RepairUnreadable: the row is no event.
	RepairUnreadable RepairState = "unreadable"
	// RepairUnknown: the relay ended while it published the event. Only the topic
	// can tell.
	RepairUnknown RepairState = "unknown"
)

// Final says that the state does not change any more.
func (s RepairState) Final() bool { return s != RepairAsked && s != RepairTaken }

// Repair is a request to publish one event, and the relay's answer.
type Repair struct {
	ID                 gocql.UUID // of the request
	Aggregate, EventID gocql.UUID
	Sequence           int64
	State              RepairState
	Detail             string
}

// Repairs are the requests to a relay of one name to publish events of a table
// that are proven to be missing from their topics; the table relay_repairs has
// them. It is safe for concurrent use, and errors leave a request as it was, or
// as it was to become.
type Repairs struct {
	session            *gocql.Session
	relay, table, host string
	name               string
	Fence              func() error // of answers; nil is none
}

// NewRepairs returns the requests to the relay of that name about the events of a
// table, a name with its keyspace; the given keyspace has them.
func NewRepairs(session *gocql.Session, keyspace, relay, table string) *Repairs {
	return &Repairs{session: session, relay: relay, table: table, host: self.Host(), name: keyspace + ".relay_repairs"}
}

func (r *Repairs) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return r.session.Query(stmt, args...).WithContext(ctx).Consistency(gocql.LocalQuorum).DefaultTimestamp(false)
}

// change executes a conditional write, and returns whether it was applied. All writes
// are conditional: whose clock is ahead does not cover what others write later, and a
// write that is delayed on its way changes nothing that was answered meanwhile.
func (r *Repairs) change(ctx context.Context, stmt string, args ...any) (bool, error) {
	return r.query(ctx, stmt, args...).MapScanCAS(map[string]any{})
}

// Ask asks for an event and gives the request its id. Whoever asks must have
// read the event's topic to its end and not found it.
func (r *Repairs) Ask(ctx context.Context, req *Repair) error {
	req.ID, req.State, req.Detail = gocql.TimeUUID(), RepairAsked, ""
	_, err := r.change(ctx, "INSERT INTO "+r.name+" (relay, table_name, request_id, aggregate_id, seq, event_id, state, asked_by, updated_at)"+
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS",
		r.relay, r.table, req.ID, req.Aggregate, req.Sequence, req.EventID, string(req.State), r.host, time.Now())
	if err != nil {
		return fmt.Errorf("ask for event %s: %w", req.EventID, err)
	}
	return nil
}

// All returns the requests there are, the oldest first.
func (r *Repairs) All(ctx context.Context) ([]Repair, error) {
	iter := r.query(ctx, "SELECT request_id, aggregate_id, seq, event_id, state, detail FROM "+r.name+" WHERE relay = ? AND table_name = ?", r.relay, r.table).Iter()
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
	if _, err := r.change(ctx, "DELETE FROM "+r.name+" WHERE relay = ? AND table_name = ? AND request_id = ? IF EXISTS", r.relay, r.table, id); err != nil {
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
	applied, err := r.change(ctx, "UPDATE "+r.name+" SET state = ?, detail = ?, updated_at = ? WHERE relay = ? AND table_name = ? AND request_id = ? IF state = ?",
		string(to), detail, time.Now(), r.relay, r.table, id, string(from))
	if err != nil {
		return false, fmt.Errorf("answer request %s: %w", id, err)
	}
	return applied, nil
}

// Take answers that a relay publishes the event. It returns false if the answer does
// not hold: the request was answered or deleted, or it has a timestamp from the future,
// as versions before wrote it where a clock was ahead, which covers the answer.
func (r *Repairs) Take(ctx context.Context, id gocql.UUID) (bool, error) {
	applied, err := r.Answer(ctx, id, RepairAsked, RepairTaken, "")
	if err != nil || !applied {
		return false, err
	}
	var state RepairState
	err = r.query(ctx, "SELECT state FROM "+r.name+" WHERE relay = ? AND table_name = ? AND request_id = ?", r.relay, r.table, id).Scan((*string)(&state))
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return false, fmt.Errorf("read the answer to request %s: %w", id, err)
	}
	return state == RepairTaken, nil
}
