package appending

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A writer in another language has stored event 1 by the statements of docs/protocol.md, with
// content that Append refuses. The writers in Go continue behind it.
func TestAppender_ContinuesBehindEventsThatItWouldRefuse(t *testing.T) {
	for name, row := range map[string]struct {
		headers map[string]string
		payload string
	}{
		"content-type":      {map[string]string{"content-type": "text/plain"}, "{}"},
		"CloudEvents":       {map[string]string{"ce_source": "python"}, "{}"},
		"large":             {nil, strings.Repeat("x", outbox.MaxEventBytes+1)},
		"reference, broken": {map[string]string{outbox.HeaderDataRef: "?"}, "{}"},
	} {
		eachVersion(t, name, func(t *testing.T, w world.World) {
			id := gocql.MustRandomUUID()
			if err := w.Session.Query("INSERT INTO outbox_messages (aggregate_id, seq, event_id, aggregate_type, event_type, payload, content_type, headers, created_at)"+
				" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS", id.String(), int64(1), gocql.MustRandomUUID(), "account", "BalanceChanged", []byte(row.payload), "application/json", row.headers, time.Now()).
				Exec(); err != nil {
				t.Error(err)
			}
			a := newAppender(t, w.Session, outbox.AppenderConfig{})
			e := outbox.Event{
				ID: outbox.NewID(), AggregateID: outbox.IDFromUUID(id), Sequence: 1, AggregateType: "account", Type: "BalanceChanged", Payload: []byte("{}"), CreatedAt: time.Now(),
			}
			_, err := a.AppendNext(t.Context(), e, outbox.AppendOptions{})
			if conflict := (*outbox.ConflictError)(nil); !errors.As(err, &conflict) || len(conflict.Events) != 1 || string(conflict.Events[0].Payload) != row.payload {
				t.Errorf("AppendNext() = %v, want a *ConflictError with the event of the other", err)
			}
			e.Sequence++
			if _, err := a.AppendNext(t.Context(), e, outbox.AppendOptions{}); err != nil {
				t.Errorf("the next event: %v", err)
			}
		})
	}
}

// The batch of docs/protocol.md, "State and events in one partition", with a session whose policy
// is the driver's: the response of an attempt that is decided is a timeout. A change that was
// applied is not reported as refused.
func TestOnePartition_ReportsALostResponse(t *testing.T) {
	eachVersion(t, "", onePartitionReportsALostResponse)
}

func onePartitionReportsALostResponse(t *testing.T, w world.World) {
	t.Helper()
	if err := w.Session.Query("CREATE TABLE balances (aggregate_id uuid, seq bigint, event_id uuid, balance bigint static, version bigint static," +
		" PRIMARY KEY (aggregate_id, seq)) WITH cdc = {'enabled': true, 'ttl': 259200}").Exec(); err != nil {
		t.Error(err)
	}
	id := gocql.MustRandomUUID()
	b := w.Session.Batch(gocql.LoggedBatch).RetryPolicy(&gocql.SimpleRetryPolicy{NumRetries: 0})
	b.Query("UPDATE balances SET balance = ?, version = ? WHERE aggregate_id = ? IF version = ?", 10, 1, id, nil)
	b.Query("INSERT INTO balances (aggregate_id, seq, event_id) VALUES (?, ?, ?)", id, 1, gocql.MustRandomUUID())
	w.Fault(1, faults.Effect{Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateDecided}, engine.OpCAS)
	applied, _, err := w.Session.MapExecuteBatchCAS(b, map[string]any{})
	if err == nil {
		t.Errorf("MapExecuteBatchCAS() = %v without an error: the driver has hidden the first attempt", applied)
	}
	var events int
	if err := w.Session.Query("SELECT COUNT(*) FROM balances WHERE aggregate_id = ?", id).Consistency(gocql.Consistency(gocql.Serial)).Scan(&events); err != nil || events != 1 {
		t.Errorf("%d events, %v, want the one that was decided", events, err)
	}
}

// eachVersion runs a test in virtual time on each version of the engine.
func eachVersion(t *testing.T, name string, test func(*testing.T, world.World)) {
	t.Helper()
	for version, conf := range versions {
		t.Run(name+" "+version, func(t *testing.T) { bubble(t, conf, test) })
	}
}
