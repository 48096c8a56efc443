package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/virtual"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// virtually runs f in a bubble, where only waiting takes time, with a node and a session.
func virtually(t *testing.T, f func(*testing.T, *scyllafake.Server, *gocql.Session)) {
	t.Helper()
	virtual.Run(t, func(t *testing.T) {
		node := scyllatest.Node(t, scyllatest.Config())
		defer func() { _ = node.Close() }()
		c := scyllatest.Cluster(node, schema.DefaultKeyspace)
		c.Logger = log.New(io.Discard, "", 0)
		session, err := c.CreateSession()
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		f(t, node, session)
	})
}

// An open page learns within five seconds that the database does not answer, and that it does again; a
// database whose answers take long is none that cannot be reached.
func TestLive_AFrozenDatabaseIsReportedWithinFiveSeconds(t *testing.T) {
	virtually(t, func(t *testing.T, node *scyllafake.Server, session *gocql.Session) {
		server, _ := fillForRounds(t, session)
		defer server.live.close()
		one, err := server.live.join("mara")
		if err != nil {
			t.Fatal(err)
		}
		report := func() (reachable string, after time.Duration) {
			began, end := time.Now(), time.After(10*time.Minute)
			for {
				select {
				case event := <-one.events:
					if name, data, ok := strings.Cut(string(event), "\ndata: "); ok && name == "event: database" {
						return strings.TrimSpace(data), time.Since(began)
					}
				case <-end:
					return "missing", time.Since(began)
				}
			}
		}
		slow := node.Faults().MustAdd(faults.Rule{Effect: faults.Effect{Delay: 700 * time.Millisecond}})
		go func() {
			time.Sleep(time.Minute)
			_ = node.Faults().Remove(slow)
			node.Faults().Freeze()
		}()
		if got, after := report(); got != `{"reachable":false}` || after < time.Minute || after > time.Minute+5*time.Second {
			t.Errorf("of a database that is slow for a minute and then frozen the report is %s after %s, want that it cannot be reached within 5 s of the minute", got, after)
		}
		node.Faults().Thaw()
		if got, _ := report(); got != `{"reachable":true}` {
			t.Errorf("of a database that thawed the report is %s", got)
		}
	})
}

// Each read of a page takes less than five round trips to the database, however many dead letters,
// hours, tables and days it reads: what does not depend on each other is read concurrently. In virtual
// time only the delay of each operation takes time. Payloads take two more.
func TestRounds_APageTakesFewRoundTrips(t *testing.T) {
	virtually(t, func(t *testing.T, node *scyllafake.Server, session *gocql.Session) {
		server, one := fillForRounds(t, session)
		const delay = 700 * time.Millisecond
		rounds := func(path string) float64 {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
			began, w := time.Now(), httptest.NewRecorder()
			server.Handler().ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Fatalf("%s = %d: %s", path, w.Code, w.Body)
			}
			return time.Since(began).Seconds() / delay.Seconds()
		}
		for _, path := range []string{
			"/v1/dead-letters", "/v1/dead-letters?limit=500", "/v1/dead-letters?limit=500&with_payload=true", "/v1/dead-letters?status=pending,blocked,processing,failed,suspended&limit=100",
			"/v1/dead-letters?status=suspended&error_class=record_too_large", "/v1/dead-letters?table=outbox.orders&event_type=OrderCreated",
			"/v1/dead-letters?aggregate_id=a1", "/v1/dead-letters?text=large", "/v1/dead-letters/" + one,
			"/v1/dead-letters/stats", "/v1/dead-letters/groups", "/v1/dead-letters/groups?status=suspended",
			"/v1/audit", "/v1/audit?actor=eve", "/v1/audit?limit=500", "/v1/status", "/v1/jobs", "/v1/relays", "/v1/history", "/v1/events", "/v1/events?state=dead_letter",
		} {
			time.Sleep(time.Minute) // cached results of before are old
			rounds(path)            // the driver prepares the statements
			time.Sleep(time.Minute)
			id := node.Faults().MustAdd(faults.Rule{Effect: faults.Effect{Delay: delay}})
			most := 5.0
			if strings.Contains(path, "with_payload") {
				most += 2
			}
			if got := rounds(path); got >= most {
				t.Errorf("%s takes %.2f round trips, want less than %.0f", path, got, most)
			} else if got < 1 {
				t.Errorf("%s takes %.2f round trips: it reads nothing", path, got)
			}
			if err := node.Faults().Remove(id); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// However many pages show the newest events, the CDC log is read once in three seconds for a query.
func TestRounds_RecentEventsAreReadOnceForAllPages(t *testing.T) {
	virtually(t, func(t *testing.T, _ *scyllafake.Server, session *gocql.Session) {
		store, err := dlq.Open(session, schema.DefaultKeyspace)
		if err != nil {
			t.Fatal(err)
		}
		reads := 0
		server, err := New(Config{
			Session: session, Keyspace: schema.DefaultKeyspace, DeadLetters: store, Gate: access.Only(access.Principal{Name: "local", Role: access.Admin}), Timeout: time.Hour,
			Written: func(context.Context, string, time.Time, int) ([]WrittenEvent, error) {
				reads++
				return nil, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		pages := func(path string) {
			t.Helper()
			for range 20 {
				w := httptest.NewRecorder()
				server.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
				if w.Code != http.StatusOK {
					t.Fatalf("%s = %d: %s", path, w.Code, w.Body)
				}
			}
		}
		want := 0
		for _, path := range []string{"/v1/events", "/v1/events?limit=8"} {
			want += len(recentAges)
			if pages(path); reads != want {
				t.Errorf("20 times %s: %d reads of the log, want %d", path, reads, want)
			}
		}
		time.Sleep(recentKept)
		if pages("/v1/events"); reads != want+len(recentAges) {
			t.Errorf("after %s: %d reads of the log, want %d", recentKept, reads, want+len(recentAges))
		}
		for i := range 2 * maxRecentKept { // other queries do not accumulate
			pages(fmt.Sprintf("/v1/events?limit=%d", 10+i))
		}
	})
}

// Where each read of the log takes long, all tables are read at once and for two ages only.
func TestRecentEvents_OfASlowLogAreReadTwice(t *testing.T) {
	virtually(t, func(t *testing.T, _ *scyllafake.Server, session *gocql.Session) {
		store, err := dlq.Open(session, schema.DefaultKeyspace)
		if err != nil {
			t.Fatal(err)
		}
		const takes = 3 * time.Second
		server, err := New(Config{
			Session: session, Keyspace: schema.DefaultKeyspace, DeadLetters: store, Gate: access.Only(access.Principal{Name: "local", Role: access.Admin}), Timeout: time.Hour,
			Tables: []Table{{Keyspace: "outbox", Name: "orders"}, {Keyspace: "outbox", Name: "outbox_messages"}},
			Written: func(context.Context, string, time.Time, int) ([]WrittenEvent, error) {
				time.Sleep(takes)
				return nil, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		began, w := time.Now(), httptest.NewRecorder()
		server.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/events", http.NoBody))
		if got := time.Since(began) / takes; w.Code != http.StatusOK || got != 2 {
			t.Errorf("the list has %d and took the time of %d reads, want 2: %s", w.Code, got, w.Body)
		}
	})
}

// The tables whose log no relay reads are counted at once, and up to the limit of all.
func TestStatus_CountsTheTablesAtOnce(t *testing.T) {
	virtually(t, func(t *testing.T, _ *scyllafake.Server, session *gocql.Session) {
		store, err := dlq.Open(session, schema.DefaultKeyspace)
		if err != nil {
			t.Fatal(err)
		}
		for _, waits := range []int{1, maxUnread/4 + 1} {
			const takes = 3 * time.Second
			conf := Config{
				Session: session, Keyspace: schema.DefaultKeyspace, DeadLetters: store, Gate: access.Only(access.Principal{Name: "local", Role: access.Admin}), Timeout: time.Hour,
				Unread: func(context.Context, UnreadOf, int) (int, error) { time.Sleep(takes); return waits, nil },
			}
			for i := range 4 {
				conf.Tables = append(conf.Tables, Table{Keyspace: "outbox", Name: fmt.Sprint("orders_", i)})
			}
			server, err := New(conf)
			if err != nil {
				t.Fatal(err)
			}
			began, w := time.Now(), httptest.NewRecorder()
			server.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/status", http.NoBody))
			var b StatusBody
			if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil || time.Since(began).Round(time.Second) != takes {
				t.Errorf("the status took %s, want %s: %v, %s", time.Since(began), takes, err, w.Body)
			}
			if want := int64(min(4*waits, maxUnread)); b.Waiting.Events != want || b.Waiting.AtLeast != (want == maxUnread) {
				t.Errorf("of 4 tables with %d events each wait %+v", waits, b.Waiting)
			}
		}
	})
}

// A list of the newest events that several callers share does not end with the first of them, and does not
// wait for the first one's other reads.
func TestRecentEvents_AreNotTheFirstCallers(t *testing.T) {
	virtually(t, func(t *testing.T, _ *scyllafake.Server, session *gocql.Session) {
		store, err := dlq.Open(session, schema.DefaultKeyspace)
		if err != nil {
			t.Fatal(err)
		}
		reading := make(chan struct{})
		server, err := New(Config{
			Session: session, Keyspace: schema.DefaultKeyspace, DeadLetters: store, Gate: access.Only(access.Principal{Name: "local", Role: access.Admin}), Timeout: time.Hour,
			Written: func(ctx context.Context, _ string, _ time.Time, _ int) ([]WrittenEvent, error) {
				select {
				case <-reading:
					return nil, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		list := func(ctx context.Context) <-chan *httptest.ResponseRecorder {
			done := make(chan *httptest.ResponseRecorder, 1)
			go func() {
				w := httptest.NewRecorder()
				server.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events", http.NoBody))
				done <- w
			}()
			synctest.Wait()
			return done
		}
		for range maxHeavy / 2 { // the first caller has its share of expensive reads
			give, err := server.ops.heavy.Wait(t.Context(), "local")
			if err != nil {
				t.Fatal(err)
			}
			defer give()
		}
		ctx, cancel := context.WithCancel(t.Context())
		first, second := list(ctx), list(t.Context())
		cancel()
		if w := <-first; w.Code != httpapi.StatusHungUp {
			t.Errorf("the caller that left has %d: %s", w.Code, w.Body)
		}
		close(reading)
		if w := <-second; w.Code != http.StatusOK || strings.Contains(w.Body.String(), "was not read") {
			t.Errorf("the other caller has %d: %s", w.Code, w.Body)
		}
	})
}

// fillForRounds returns a server with dead letters of several hours, tables and states, an audit trail of
// a month and the id of a dead letter.
func fillForRounds(t *testing.T, session *gocql.Session) (server *Server, one string) {
	t.Helper()
	now := time.Now()
	at := now
	store, err := dlq.Open(session, schema.DefaultKeyspace, dlq.WithClock(world.Clock(func() time.Time { return at })), dlq.WithTimeouts(time.Hour, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		at = now.Add(-time.Duration(i) * 15 * time.Minute)
		l := testDeadLetter(fmt.Sprint("a", i/3), int64(1000-i))
		l.Table = []string{"outbox.orders", testTable, "subscription.mail"}[i%3]
		switch i % 5 {
		case 0:
			l.Status, l.ErrorClass, l.Strategy, l.NextAttempt = dlq.Pending, "timeout", dlq.StrategyImmediate, now.Add(time.Hour)
		case 1:
			l.Status, l.ErrorClass, l.ErrorText = dlq.Blocked, "behind", ""
		}
		if _, err := store.Write(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if one = l.EventID.String(); i%7 == 0 {
			if err := store.Discard(t.Context(), l.EventID, dlq.Actor{Name: "eve"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	server, err = New(Config{
		Session: session, Keyspace: schema.DefaultKeyspace, DeadLetters: store, Gate: access.Only(access.Principal{Name: "local", Role: access.Admin}), Timeout: time.Hour,
		Tables: []Table{{Keyspace: "outbox", Name: "orders"}, {Keyspace: "outbox", Name: "outbox_messages"}},
		Written: func(ctx context.Context, _ string, _ time.Time, _ int) ([]WrittenEvent, error) { // as relay.Log
			return []WrittenEvent{{ID: one, At: now}}, session.Query("SELECT key FROM system.local").WithContext(ctx).Exec()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 90 {
		day := now.Add(-time.Duration(i) * 8 * time.Hour)
		if err := server.audit.query(t.Context(), server.audit.stmt.intend, dayPartition(day), gocql.UUIDFromTime(day), []string{"eve", "mara"}[i%2], "admin", "replay", "", "", "a test", "r", "", day.UnixMicro()).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	return server, one
}
