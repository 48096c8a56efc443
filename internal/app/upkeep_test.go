package app

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	subscriptionstore "github.com/scylla-outbox/scylla-outbox/subscriptions/store"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// With the default settings, without an archive, upkeep deletes a dead letter that was
// resolved 31 days ago and leaves one of 29 days.
func TestUpkeep_DeletesByDefault(t *testing.T) {
	t.Parallel()
	_, session := scyllatest.Start(t)
	c := defaults()
	c.Scylla.Keyspace, c.Scylla.Timeout = schema.DefaultKeyspace, time.Minute
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var ids []gocql.UUID
	var store *dlq.Store
	for _, days := range []int{31, 29} {
		at := time.Now().AddDate(0, 0, -days)
		var err error
		store, err = dlq.Open(session, schema.DefaultKeyspace, append(c.DLQOptions(), dlq.WithClock(world.Clock(func() time.Time { return at })))...)
		must(err)
		l := &dlq.DeadLetter{Table: "outbox.outbox_messages", EventID: gocql.MustRandomUUID(), AggregateID: fmt.Sprint(days), Payload: []byte("{}")}
		_, err = store.Write(t.Context(), l)
		must(err)
		must(store.Discard(t.Context(), l.EventID, dlq.Actor{Name: "eve"}))
		ids = append(ids, l.EventID)
	}
	// A subscription that keeps its dead letters for 4 days has one of 29 days.
	resources, err := subscriptionstore.Open(session, schema.DefaultKeyspace)
	must(err)
	_, err = resources.Put(t.Context(), subscriptions.Subscription{Name: "mail", Topics: []string{"t"}, DeadLetter: subscriptions.DeadLetter{RetentionDays: 4}}.WithDefaults(), "ada")
	must(err)
	l := &dlq.DeadLetter{Table: "subscription.mail", EventID: gocql.MustRandomUUID(), AggregateID: "k", Payload: []byte("{}"), Status: dlq.Suspended}
	_, err = store.Write(t.Context(), l)
	must(err)
	must(store.Discard(t.Context(), l.EventID, dlq.Actor{Name: "eve"}))
	// The first sweep of a keyspace is an interval after the start.
	must(session.Query("INSERT INTO "+schema.DefaultKeyspace+".dead_letter_duties (name, state) VALUES ('retention', ?)",
		fmt.Sprintf(`{"finished":%q}`, time.Now().Add(-2*time.Hour).Format(time.RFC3339))).Exec())
	u, err := NewUpkeep(t.Context(), c, session, nil, slog.New(slog.DiscardHandler), new(daemon.Teardown))
	must(err)
	read := func(id gocql.UUID) dlq.DeadLetter {
		l, err := store.Read(t.Context(), id)
		must(err)
		return l
	}
	must(u.Run(t.Context(), func(context.Context) error {
		for deadline := time.Now().Add(5 * time.Minute); read(ids[0]).PurgedAt.IsZero() || read(l.EventID).PurgedAt.IsZero(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Error("nothing was deleted")
				break
			}
		}
		return nil
	}))
	if l := read(ids[0]); l.Status != dlq.Archived || l.Archive != "" || l.Payload != nil {
		t.Errorf("after 31 days it is %s in %q", l.Status, l.Archive)
	}
	if l := read(ids[1]); l.Status != dlq.Resolved || l.Payload == nil {
		t.Errorf("after 29 days it is %s", l.Status)
	}
}

// Upkeep is ready while it can read the dead letters; otherwise /readyz contains the reason.
func TestUpkeep_Readiness(t *testing.T) {
	t.Parallel()
	for _, missing := range []bool{false, true} {
		_, session := scyllatest.Start(t)
		if missing {
			if err := session.Query("DROP TABLE " + schema.DefaultKeyspace + ".dead_letter_duties").Exec(); err != nil {
				t.Fatal(err)
			}
		}
		c := defaults()
		c.Scylla.Keyspace, c.Scylla.Timeout = schema.DefaultKeyspace, time.Minute
		var log logtest.Buffer
		reg := prometheus.NewRegistry()
		u, err := NewUpkeep(t.Context(), c, session, reg, slog.New(slog.NewTextHandler(&log, nil)), new(daemon.Teardown))
		if err != nil {
			t.Fatal(err)
		}
		if ready, _ := u.Readiness(); !ready {
			t.Error("not ready before the first poll")
		}
		if err := u.Run(t.Context(), func(context.Context) error {
			for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
				if missing && strings.Contains(log.String(), "failed to poll the dead letters") || !missing && pollSucceeded(t, reg) {
					break
				}
			}
			ready, detail := u.Readiness()
			if ready == missing || strings.Contains(fmt.Sprint(detail), "dead_letter_duties") != missing {
				t.Errorf("without the table %t: ready %t, %v", missing, ready, detail)
			}
			return nil
		}); err != nil && !missing {
			t.Error(err)
		}
	}
}

// pollSucceeded reports whether a poll of the dead letters succeeded.
func pollSucceeded(t *testing.T, reg prometheus.Gatherer) bool {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "outbox_notifications_poll_duration_seconds" {
			return f.GetMetric()[0].GetGauge().GetValue() > 0
		}
	}
	return false
}

// Upkeep notifies of a relay whose breaker has been open for three minutes.
func TestUpkeep_NotifiesOfAnOpenBreaker(t *testing.T) {
	t.Parallel()
	_, session := scyllatest.Start(t)
	c := defaults()
	c.Scylla.Keyspace, c.Scylla.Timeout = schema.DefaultKeyspace, time.Minute
	began := time.Now().Add(-3 * time.Minute)
	// The heartbeat is fresh, however long the test takes to read it.
	if err := session.Query("INSERT INTO "+schema.DefaultKeyspace+".relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', 'outbox', 'outbox.outbox_messages', 'pod-a/1', ?, ?)",
		time.Now().Add(time.Hour), fmt.Sprintf(`{"state":"running","breaker":{"state":"open","opened":%q,"cause":"refused"}}`, began.Format(time.RFC3339))).Exec(); err != nil {
		t.Fatal(err)
	}
	var log logtest.Buffer
	u, err := NewUpkeep(t.Context(), c, session, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)), new(daemon.Teardown))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`title="the broker accepts no events since %s, as relay outbox at pod-a/1 reports"`, began.UTC().Format(time.RFC3339))
	if err := u.Run(t.Context(), func(context.Context) error {
		for deadline := time.Now().Add(5 * time.Minute); !strings.Contains(log.String(), want) && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), want) {
		t.Errorf("the log is %q, want a notice with %s", log.String(), want)
	}
}
