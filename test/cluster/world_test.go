package cluster

import (
	"bytes"
	"context"
	"io"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// maxP99 is the maximum cost of a silent or dead node.
const maxP99 = time.Second

// world is a database of three nodes with the schema in RF 3, and a session with the
// production settings.
type world struct {
	*testing.T
	db      *scyllafake.Server
	nodes   *sessions.Nodes
	session *gocql.Session
}

// process is set in the processes of inBubble.
const process = "CLUSTER_TEST_PROCESS"

// inBubble runs f in virtual time, in a process of its own. The driver holds the
// lock of a pool while it waits for a node, and a second goroutine of the driver that
// asks for this lock stops virtual time for ever, because a wait for a lock is not
// durable (testing/synctest). Then inBubble starts again.
func inBubble(t *testing.T, f func(*world)) {
	if os.Getenv(process) == "" {
		run(t)
		return
	}
	scyllatest.Bubble(t, func(t *testing.T) {
		db, err := scyllafake.Start(scyllafake.Config{Nodes: 3, Tokens: 12})
		if err != nil {
			t.Fatal(err)
		}
		defer time.Sleep(time.Minute) // timers of the clients
		defer func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		w := &world{T: t, db: db, nodes: sessions.NewNodes(slog.New(slog.DiscardHandler), nil)}
		admin := w.connect("")
		if err := schema.Migrate(t.Context(), admin, schema.Options{Replication: "3", Components: schema.Components()}); err != nil {
			t.Fatal(err)
		}
		sessions.Close(admin)
		w.session = w.connect(schema.DefaultKeyspace)
		defer sessions.Close(w.session)
		defer func() {
			for i := range 3 {
				db.Thaw(i)
				db.Restart(i)
			}
		}()
		f(w)
	})
}

// run runs the test in another process, at most five times.
func run(t *testing.T) {
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	for attempt := 1; ; attempt++ {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.timeout=1m", "-test.run="+pattern)
		cmd.Env = append(os.Environ(), process+"=1")
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Logf("%s", out)
			return
		}
		stopped := bytes.Contains(out, []byte("test timed out")) && bytes.Contains(out, []byte("debounce.(*SimpleDebouncer)"))
		if !stopped || attempt == 5 {
			t.Fatalf("attempt %d: %v\n%s", attempt, err, out)
		}
	}
}

// connect makes a session as the commands do.
func (w *world) connect(keyspace string) *gocql.Session {
	w.Helper()
	c := gocql.NewCluster("127.0.0.1", "127.0.0.2", "127.0.0.3")
	c.Dialer = w.db
	c.Keyspace = keyspace
	c.Port = 9042
	c.Timeout, c.ConnectTimeout = 5*time.Second, 5*time.Second
	c.ReconnectInterval = sessions.ReconnectInterval
	c.Consistency, c.SerialConsistency = gocql.LocalQuorum, gocql.Serial
	c.Logger = log.New(io.Discard, "", 0)
	w.nodes.Watch(c)
	s, err := c.CreateSession()
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// calls contains requests and their results.
type calls struct {
	mu     sync.Mutex
	took   []time.Duration
	failed []error
}

// every makes a call in each interval for a while, independent of the duration
// of earlier calls, and waits for all.
func (w *world) every(interval, during time.Duration, call func(ctx context.Context, i int) error) *calls {
	var c calls
	var wg sync.WaitGroup
	for i := range int(during / interval) {
		wg.Go(func() {
			began := time.Now()
			err := call(w.Context(), i)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.took = append(c.took, time.Since(began))
			if err != nil {
				c.failed = append(c.failed, err)
			}
		})
		time.Sleep(interval)
	}
	wg.Wait()
	return &c
}

// mustBeQuick checks that no call failed and that the 99th percentile is at
// most maxP99.
func (w *world) mustBeQuick(c *calls) {
	w.Helper()
	slices.Sort(c.took)
	p99, longest := c.took[len(c.took)*99/100], c.took[len(c.took)-1]
	w.Logf("%d calls, %d failed, p99 %s, longest %s", len(c.took), len(c.failed), p99, longest)
	if len(c.failed) > 0 {
		w.Errorf("%d of %d calls failed, the first with %v", len(c.failed), len(c.took), c.failed[0])
	}
	if p99 > maxP99 {
		w.Errorf("p99 is %s, want at most %s", p99, maxP99)
	}
}

// after schedules a change of the cluster between two calls of every, so that
// virtual time seldom stops (inBubble).
func (w *world) after(d time.Duration, change func()) { time.AfterFunc(d+25*time.Millisecond, change) }
