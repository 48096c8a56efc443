package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// heartbeatRow is a row of relay_instances.
type heartbeatRow struct {
	relay, instance string
	age             time.Duration
	status          string
}

func (b *fixture) hear(t *testing.T, rows ...heartbeatRow) {
	t.Helper()
	for _, r := range rows {
		if err := b.Session.Query("INSERT INTO outbox.relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', ?, ?, ?, ?, ?)",
			r.relay, testTable, r.instance, time.Now().Add(-r.age), r.status).Exec(); err != nil {
			t.Fatal(err)
		}
	}
}

// The title names the cause of a problem and not its consequences, with the number of events that
// wait; levels order what an operator has to do.
func TestStatus_TitleNamesTheCause(t *testing.T) {
	t.Parallel()
	const (
		shard0, shard1 = "outbox/00-of-02", "outbox/01-of-02"
		running0       = `{"state":"running","ready":true,"shard":{"index":0,"count":2},"breaker":{"state":"closed"},"rates":{"published":3}}`
		running1       = `{"state":"running","ready":true,"shard":{"index":1,"count":2},"breaker":{"state":"closed"},"rates":{"published":4}}`
		stopped0       = `{"state":"stopped","in_flight":5,"shard":{"index":0,"count":2},"breaker":{"state":"closed"}}`
		stopped1       = `{"state":"stopped","shard":{"index":1,"count":2},"breaker":{"state":"closed"}}`
		member         = `{"state":"running","ready":true,"sharing":{"shards":2,"owned":[0,1],"joined":true}}`
		away           = `{"state":"running","problems":["no heartbeat is acknowledged by the broker"],"sharing":{"shards":2,"owned":[],"joined":false,"error":"unable to dial","since":"2026-01-02T03:44:55Z","unreachable":true}}`
	)
	for name, tt := range map[string]struct {
		rows  []heartbeatRow
		open  bool // there is a dead letter that nobody has to decide on
		level Level
		title string
		more  []string
		lacks string
	}{
		"all is well": {
			rows:  []heartbeatRow{{"outbox", "i/shards", 0, member}, {shard0, "i", 0, running0}, {shard1, "i", 0, running1}},
			level: LevelOK, title: "No dead letters are open.", more: []string{"being published"},
		},
		"the broker is away": {
			rows:  []heartbeatRow{{"outbox", "i/shards", 0, away}, {shard0, "i", 2 * time.Second, stopped0}, {shard1, "i", 2 * time.Second, stopped1}},
			level: LevelCritical, title: "Broker unreachable since 2026-01-02 03:44:55Z; events are accepted; 305 events wait.", more: []string{"Unable to dial."}, lacks: "owns",
		},
		"the breaker is half-open": {
			rows: []heartbeatRow{{"outbox", "i/shards", 0, member}, {shard1, "i", 0, running1}, {
				shard0, "i", 0,
				`{"state":"running","in_flight":7,"shard":{"index":0,"count":2},"problems":["the breaker is half-open"],"breaker":{"state":"half-open","since":"2026-01-02T03:50:00Z","opened":"2026-01-02T03:44:55Z","cause":"NOT_ENOUGH_REPLICAS"}}`,
			}},
			level: LevelCritical, title: "The broker accepts no events since 2026-01-02 03:44:55Z; events are accepted; 7 events wait.", more: []string{"NOT_ENOUGH_REPLICAS."},
		},
		"the process was killed": {
			rows:  []heartbeatRow{{"outbox", "i/shards", time.Minute, member}, {shard0, "i", time.Minute, running0}, {shard1, "i", time.Minute, running1}},
			level: LevelCritical, title: "Relay outbox (shards 0, 1 of 2) has sent no heartbeat since", more: []string{}, lacks: "owns",
		},
		"a shard has no owner": {
			rows:  []heartbeatRow{{"outbox", "i/shards", 0, member}, {shard0, "i", 0, running0}, {shard1, "i", 30 * time.Second, stopped1}},
			level: LevelCritical, title: "No instance owns shard 1 of relay outbox; 300 events wait.",
		},
		"several problems": {
			rows: []heartbeatRow{
				{"outbox", "i/shards", 0, member},
				{shard0, "i", 0, `{"state":"running","shard":{"index":0,"count":2},"problems":["the table has no column seq","the log is outrun"],"breaker":{"state":"closed"}}`},
				{shard1, "i", 30 * time.Second, stopped1},
				{"billing", "k", time.Minute, `{"state":"running","breaker":{"state":"closed"}}`},
			},
			level: LevelCritical, title: "Relay billing has sent no heartbeat since",
			more: []string{"No instance owns shard 1 of relay outbox. Relay outbox (shard 0 of 2) has a problem. The table has no column seq; the log is outrun."},
		},
		"a process is silent in an outage": {
			rows: []heartbeatRow{
				{"outbox", "i/shards", 0, away},
				{shard0, "i", 2 * time.Second, stopped0},
				{shard1, "i", 2 * time.Second, stopped1},
				{"billing", "k", time.Minute, `{"state":"running","breaker":{"state":"closed"}}`},
			},
			level: LevelCritical, title: "Broker unreachable since 2026-01-02 03:44:55Z;", more: []string{"Unable to dial.", "Relay billing has sent no heartbeat since"}, lacks: "owns",
		},
		"the owner changed": {
			rows:  []heartbeatRow{{"outbox", "j/shards", 0, member}, {shard0, "i", 30 * time.Second, stopped0}, {shard1, "i", 30 * time.Second, running1}, {shard0, "j", 0, running0}, {shard1, "j", 0, running1}},
			level: LevelOK, title: "No dead letters are open.",
		},
		"the relay was stopped": {
			rows:  []heartbeatRow{{shard0, "i", time.Hour, stopped0}, {shard1, "i", time.Hour, stopped1}},
			level: LevelWarning, title: "Relay outbox was stopped at ", more: []string{},
		},
		"the relay was stopped, and there is a dead letter": {
			rows: []heartbeatRow{{shard0, "i", time.Hour, stopped0}, {shard1, "i", time.Hour, stopped1}}, open: true,
			level: LevelWarning, title: "Relay outbox was stopped at ", more: []string{"1 dead letter needs your decision."},
		},
		"a dead letter": {
			rows: []heartbeatRow{{"outbox", "i/shards", 0, member}, {shard0, "i", 0, running0}, {shard1, "i", 0, running1}}, open: true,
			level: LevelWarning, title: "1 dead letter needs your decision.",
		},
		"a dead letter without a relay": {open: true, level: LevelWarning, title: "1 dead letter needs your decision.", more: []string{"No relay has sent a heartbeat."}},
		"nothing":                       {level: LevelCritical, title: "No relay has sent a heartbeat; 300 events wait."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *Config) {
				c.Relay = "outbox"
				c.Unread = func(_ context.Context, of UnreadOf, limit int) (int, error) {
					if of.Table != testTable || limit <= 0 {
						return 0, fmt.Errorf("asked for %+v, %d", of, limit)
					}
					if of.Shards == 2 {
						return 300 * of.Shard, nil
					}
					return 300, nil
				}
			})
			b.hear(t, tt.rows...)
			if tt.open {
				b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
			}
			var got StatusBody
			b.ask(t, access.Viewer, "GET", "/v1/status", "").into(t, 200, &got)
			details := strings.Join(got.Details, " ")
			if got.Level != tt.level || !strings.HasPrefix(got.Title, tt.title) || len(got.Unknown) > 0 {
				t.Errorf("the status is %s, %q, unknown %q; want %s, %q", got.Level, got.Title, got.Unknown, tt.level, tt.title)
			}
			for _, m := range tt.more {
				if !strings.Contains(details, m) {
					t.Errorf("the details are %q, want %q", got.Details, m)
				}
			}
			if tt.lacks != "" && strings.Contains(got.Title+details, tt.lacks) {
				t.Errorf("a consequence is reported too: %q, %q", got.Title, got.Details)
			}
			if (got.Outage != nil) != strings.Contains(got.Title, "roker") {
				t.Errorf("the outage is %+v, the title %q", got.Outage, got.Title)
			}
			if name == "all is well" && got.Published != 7 {
				t.Errorf("%v events are published per second, want 7", got.Published)
			}
		})
	}
}

// fakeSubscriptions are two subscriptions, one of whose state is not known.
type fakeSubscriptions struct{}

func (fakeSubscriptions) Of(context.Context, *kgo.Record) ([]subscriptions.Progress, error) {
	return nil, nil
}

func (fakeSubscriptions) List(context.Context) ([]subscriptions.Subscription, error) {
	return []subscriptions.Subscription{{Name: "mail", Paused: true}, {Name: "index"}}, nil
}

func (fakeSubscriptions) Status(_ context.Context, name string) (subscriptions.Status, error) {
	if name == "index" {
		return subscriptions.Status{}, errors.New("no owner answers")
	}
	return subscriptions.Status{
		Lag: 12, Leased: 2, Oldest: time.Unix(1_700_000_000, 0), DeadLetters: 3, Instances: []subscriptions.InstanceStatus{{At: time.Now()}, {At: time.Now()}, {At: time.Now().Add(-time.Minute)}}, // the last one has ended
		Partitions: []subscriptions.PartitionStatus{{Owner: "a"}, {}, {Owner: "b"}},
	}, nil
}

// The status has the subscriptions with the age of the oldest message, and the verification. A
// part that cannot be read is named, and the others are there.
func TestStatus_Parts(t *testing.T) {
	t.Parallel()
	last := time.Date(2026, 11, 28, 2, 0, 0, 0, time.UTC)
	b := setup(t, func(c *Config) {
		c.Subscriptions = fakeSubscriptions{}
		c.Unread = func(context.Context, UnreadOf, int) (int, error) { return 0, errors.New("the log is gone") }
		c.Verification = func(context.Context) ([]VerificationState, error) {
			return []VerificationState{{Table: testTable, LastPass: &last, Missing: 2}}, nil
		}
	})
	var got StatusBody
	b.ask(t, access.Viewer, "GET", "/v1/status", "").into(t, 200, &got)
	if len(got.Subscriptions) != 2 || got.Subscriptions[0].Name != "index" || got.Subscriptions[0].Error == "" {
		t.Fatalf("the subscriptions are %+v, want index, with an error, and mail", got.Subscriptions)
	}
	if m := got.Subscriptions[1]; m.Oldest == nil || m.Oldest.Unix() != 1_700_000_000 || m.Lag != 12 || m.Unowned != 1 || m.Partitions != 3 || m.Instances != 2 || m.DeadLetters != 3 || !m.Paused {
		t.Errorf("mail is %+v", m)
	}
	if got.Level != LevelCritical || got.Title != "The verification misses 2 events in the topics." {
		t.Errorf("the status is %s, %q, although events are missing", got.Level, got.Title)
	}
	if len(got.Verification) != 1 || !got.Verification[0].LastPass.Equal(last) || !slices.ContainsFunc(got.Details, func(s string) bool { return strings.Contains(s, "misses 2 events") }) {
		t.Errorf("the verification is %+v, the details %q", got.Verification, got.Details)
	}
	if len(got.Unknown) != 1 || got.Unknown[0] != "waiting: the log is gone" {
		t.Errorf("unknown parts are %q, want the waiting events", got.Unknown)
	}
}

// The events that a relay has in flight come from its last heartbeat: when they have become dead
// letters of an open breaker, they are not counted twice.
func TestStatus_InFlightIsOfTheLastHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, inFlight := range []int64{12, 0} {
		b.hear(t, heartbeatRow{"outbox", "i", 0, fmt.Sprintf(`{"state":"running","ready":true,"in_flight":%d,"breaker":{"state":"closed"}}`, inFlight)})
		var got StatusBody
		b.ask(t, access.Viewer, "GET", "/v1/status", "").into(t, 200, &got)
		if got.Waiting.Events != inFlight {
			t.Errorf("%d events wait, want the %d in flight", got.Waiting.Events, inFlight)
		}
	}
}

// pushedSubscriptions are subscriptions with push delivery by two processes.
type pushedSubscriptions struct{ fakeSubscriptions }

func (pushedSubscriptions) List(context.Context) ([]subscriptions.Subscription, error) {
	return []subscriptions.Subscription{{Name: "ends"}, {Name: "paused", Paused: true}, {Name: "partly"}, {Name: "works"}}, nil
}

func (pushedSubscriptions) Status(_ context.Context, name string) (subscriptions.Status, error) {
	open, half := &subscriptions.BreakerStatus{State: "open", Cause: "the receiver answered 500"}, &subscriptions.BreakerStatus{State: "half-open", Cause: "the receiver answered 500"}
	closed := &subscriptions.BreakerStatus{State: "closed"}
	breakers := map[string][]*subscriptions.BreakerStatus{"ends": {open, half}, "paused": {open, open}, "partly": {open, closed}, "works": {closed, closed}}[name]
	s := subscriptions.Status{Lag: 1294, Instances: []subscriptions.InstanceStatus{{At: time.Now(), Breaker: closed}, {At: time.Now().Add(-time.Minute), Partitions: 3, Breaker: closed}}} // they own nothing: one has ended
	for _, b := range breakers {
		s.Instances = append(s.Instances, subscriptions.InstanceStatus{At: time.Now(), Partitions: 3, Breaker: b})
	}
	return s, nil
}

// A subscription whose destination fails is the problem of the status, before dead letters: it
// writes none while its breaker is open, and its messages wait.
func TestStatus_SubscriptionDeliversNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Subscriptions = pushedSubscriptions{} })
	b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
	var got StatusBody
	b.ask(t, access.Viewer, "GET", "/v1/status", "").into(t, 200, &got)
	for _, s := range got.Subscriptions {
		if want := s.Name == "ends" || s.Name == "paused"; (s.Suspended == "the receiver answered 500") != want {
			t.Errorf("subscription %s is suspended by %q", s.Name, s.Suspended)
		}
	}
	if want := "Subscription ends delivers nothing; 1,294 messages wait."; got.Level != LevelWarning || got.Title != want {
		t.Errorf("the status is %s, %q; want a warning, %q", got.Level, got.Title, want)
	}
	if details := strings.Join(got.Details, " "); !strings.Contains(details, "The receiver answered 500.") || !strings.Contains(details, "1 dead letter needs your decision.") {
		t.Errorf("the details are %q", got.Details)
	}
}
