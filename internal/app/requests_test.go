package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
)

// countedSession returns a database, the counters of a session, and the session.
func countedSession(t *testing.T, args ...string) (*scyllafake.Server, *Requests, *gocql.Session) {
	t.Helper()
	node, err := scyllafake.Start(scyllafake.Config{Addr: "127.0.0.1:0", Tokens: 4, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() }) // some tests closed it
	c, err := parseConfig(t, "", nil, append([]string{"--scylla-hosts", node.Addr()}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	c.Scylla.Requests = NewRequests(prometheus.NewRegistry())
	session, err := c.Scylla.Session("system")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	return node, c.Scylla.Requests, session
}

func askDatabase(ctx context.Context, session *gocql.Session) error {
	return session.Query("SELECT key FROM system.local").WithContext(ctx).Exec()
}

// An outage shows, however a request ends: also one for which no node is there, of which the driver
// does not notify its observers.
func TestRequests_CountAnOutage(t *testing.T) {
	t.Parallel()
	node, r, session := countedSession(t)
	before := testutil.ToFloat64(r.ok)
	if err := askDatabase(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	if got := testutil.ToFloat64(r.ok); got != before+1 {
		t.Errorf("%g requests ok, want %g", got, before+1)
	}
	if got := testutil.ToFloat64(r.unreached) + testutil.ToFloat64(r.failed); got != 0 {
		t.Errorf("%g requests failed while the database is there", got)
	}
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Minute); testutil.ToFloat64(r.unreached) == 0; time.Sleep(20 * time.Millisecond) {
		if askDatabase(t.Context(), session) == nil {
			t.Fatal("a database that is closed answered")
		}
		if time.Now().After(end) {
			t.Fatalf("no request counts as unreached, %g as failed", testutil.ToFloat64(r.failed))
		}
	}
	failed, unreached := testutil.ToFloat64(r.failed), testutil.ToFloat64(r.unreached)
	const more = 5
	for range more {
		_ = askDatabase(t.Context(), session) // counted below
	}
	if got := testutil.ToFloat64(r.failed) + testutil.ToFloat64(r.unreached); got != failed+unreached+more {
		t.Errorf("%d requests to a database that is away count as %g", more, got-failed-unreached)
	}
}

// endsWith is a context with a cause of its end.
type endsWith struct {
	context.Context
	err error
}

func (c endsWith) Err() error {
	if c.Context.Err() != nil {
		return c.err
	}
	return nil
}

// A request that nobody answered in time, one that nobody waits for any more, and one that is
// refused are distinguished.
func TestRequests_CountHowTheyEnd(t *testing.T) {
	t.Parallel()
	node, r, session := countedSession(t, "--scylla-timeout", "10m")
	for _, q := range []string{"CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", "CREATE TABLE k.t (key text PRIMARY KEY)"} {
		if err := session.Query(q).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	rule := node.Faults().MustAdd(faults.Rule{Match: faults.Match{Table: "t", Kinds: []engine.OpKind{engine.OpRead}}, Effect: faults.Effect{Freeze: true}})
	// asked is when the node has so many reads that it does not answer.
	asked := func(n int) {
		t.Helper()
		for end := time.Now().Add(5 * time.Minute); node.Faults().Hits(rule) < n; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the node was not asked %d times", n)
			}
		}
	}
	for i, err := range []error{context.DeadlineExceeded, context.Canceled} {
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- session.Query("SELECT key FROM k.t WHERE key = 'a'").WithContext(endsWith{ctx, err}).Exec()
		}()
		asked(i + 1)
		end()
		if got := <-ended; !errors.Is(got, err) {
			t.Errorf("the request ended with %v, want %v", got, err)
		}
	}
	node.Faults().Thaw()
	node.Faults().Clear()
	_ = session.Query("SELECT nothing FROM system.local").Exec()
	for name, c := range map[string]prometheus.Counter{"timeout": r.timedOut, "canceled": r.called, "error": r.failed} {
		if got := testutil.ToFloat64(c); got != 1 {
			t.Errorf("%g requests ended by %s, want 1", got, name)
		}
	}
	if got := testutil.ToFloat64(r.unreached); got != 0 {
		t.Errorf("%g requests were not sent, want 0", got)
	}
}

// With a data center to stay in, which makes a policy of its own, sessions are made
// and counted too.
func TestRequests_CountWithALocalDatacenter(t *testing.T) {
	t.Parallel()
	_, r, session := countedSession(t, "--scylla-local-dc", "datacenter1")
	if err := askDatabase(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	if testutil.ToFloat64(r.ok) == 0 {
		t.Error("no request counts")
	}
}
