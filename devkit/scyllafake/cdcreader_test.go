package scyllafake_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// changes collects the changes that a reader passes to its consumers.
type changes struct {
	mu   sync.Mutex
	seen map[int]int // v of a row -> how often it came
	more chan struct{}
}

func (c *changes) add(_ context.Context, _ string, change scyllacdc.Change) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, row := range change.Delta {
		if v, ok := row.GetValue("v"); ok {
			c.seen[*v.(*int)]++
		}
	}
	select {
	case c.more <- struct{}{}:
	default:
	}
	return nil
}

// await waits for the rows 0 to n-1, each once.
func (c *changes) await(t *testing.T, n int) {
	t.Helper()
	timeout := time.After(10 * time.Minute)
	for {
		c.mu.Lock()
		var missing, repeated []int
		for v := range n {
			switch times := c.seen[v]; {
			case times == 0:
				missing = append(missing, v)
			case times > 1:
				repeated = append(repeated, v)
			}
		}
		c.mu.Unlock()
		if len(repeated) > 0 {
			t.Fatalf("rows that came more than once: %v", repeated)
		}
		if len(missing) == 0 {
			return
		}
		select {
		case <-c.more:
		case <-timeout:
			t.Fatalf("rows that did not come: %v", missing)
		}
	}
}

// read runs a reader of ks.t until stop.
func read(t *testing.T, s *gocql.Session) (c *changes, stop func()) {
	t.Helper()
	c = &changes{seen: map[int]int{}, more: make(chan struct{}, 1)}
	progress, err := scyllacdc.NewTableBackedProgressManager(s, "ks.progress", "test")
	if err != nil {
		t.Fatal(err)
	}
	r, err := scyllacdc.NewReader(t.Context(), &scyllacdc.ReaderConfig{
		Session: s, TableNames: []string{"ks.t"}, ProgressManager: progress,
		ChangeConsumerFactory: scyllacdc.MakeChangeConsumerFactoryFromFunc(c.add),
		Advanced: scyllacdc.AdvancedReaderConfig{
			ConfidenceWindowSize: 200 * time.Millisecond, QueryTimeWindowSize: time.Minute, ChangeAgeLimit: 10 * time.Minute,
			PostNonEmptyQueryDelay: 50 * time.Millisecond, PostEmptyQueryDelay: 50 * time.Millisecond,
			PostFailedQueryDelay: 50 * time.Millisecond, PostGenerationFetchDelay: 200 * time.Millisecond,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return c, func() {
		cancel()
		<-done
	}
}

// readerBubble runs f with a node and a client in virtual time: on a busy machine late
// changes would be older than the reader's window. Such tests must not be parallel.
func readerBubble(t *testing.T, cfg scyllafake.Config, f func(*testing.T, *scyllafake.Server, *gocql.Session)) {
	t.Helper()
	// The driver keeps timers in a pool of the process, and a timer of one bubble may
	// not be used outside it. It takes two collections to clear one.
	emptyPools()
	defer emptyPools()
	synctest.Test(t, func(t *testing.T) {
		cfg.Seed = seeds.Of(t)
		srv, err := scyllafake.Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		c := gocql.NewCluster("127.0.0.1")
		c.Dialer = srv
		s, err := c.CreateSession()
		if err != nil {
			t.Fatal(err)
		}
		exec(t, s, createKS, createLogged)
		f(t, srv, s)
		s.Close()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute) // the driver leaves timers of its own behind
	})
}

func insert(t *testing.T, s *gocql.Session, from, to int) {
	t.Helper()
	for v := range to - from {
		v += from
		write := func() error {
			return s.Query("INSERT INTO ks.t (p, c, v) VALUES (?, ?, ?)", v%17, v, v).Exec()
		}
		err := write()
		var refused interface{ GetCode() int } // the driver has no exported type for it
		if errors.As(err, &refused) && refused.GetCode() == gocql.ErrCodeInvalid {
			// Stamped before a generation began, and there after it: a real node
			// refuses it too, and a client writes again.
			err = write()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

const createLogged = "CREATE TABLE ks.t (p int, c int, v int, PRIMARY KEY (p, c)) WITH cdc = {'enabled': true}"

func TestCDCReader_Vnodes(t *testing.T) {
	for _, shards := range []int{1, 2} {
		t.Run(fmt.Sprintf("shards=%d", shards), func(t *testing.T) {
			readerBubble(t, scyllafake.Config{Version: "5.1", Shards: shards, Tokens: 8}, func(t *testing.T, srv *scyllafake.Server, s *gocql.Session) {
				insert(t, s, 0, 50)
				got, stop := read(t, s)
				defer stop()
				got.await(t, 50)
				exec(t, s, "ALTER TABLE ks.t ADD extra text")
				insert(t, s, 50, 100)
				got.await(t, 100)
				// The client stamps its writes, so the new generation begins in its future.
				start := time.Now().Add(1500 * time.Millisecond)
				if _, err := srv.Topology().NewGeneration(start, 3); err != nil {
					t.Fatal(err)
				}
				n := insertUntil(t, s, 100, start.Add(300*time.Millisecond))
				got.await(t, n)
				if n := len(srv.Topology().Generations()); n != 2 {
					t.Errorf("%d generations, want 2", n)
				}
			})
		})
	}
}

// insertUntil inserts rows from v on until the given time and returns how many
// there are then.
func insertUntil(t *testing.T, s *gocql.Session, v int, end time.Time) int {
	t.Helper()
	for ; time.Now().Before(end); v++ {
		insert(t, s, v, v+1)
		time.Sleep(10 * time.Millisecond)
	}
	return v
}

func TestCDCReader_Tablets(t *testing.T) {
	readerBubble(t, scyllafake.Config{Version: "2025.4"}, func(t *testing.T, srv *scyllafake.Server, s *gocql.Session) {
		got, stop := read(t, s)
		defer stop()
		insert(t, s, 0, 50)
		got.await(t, 50)
		n := 50
		for i, resize := range []func(*catalog.Table, time.Time) (time.Time, error){
			srv.Topology().Split, srv.Topology().Split, srv.Topology().Merge,
		} {
			table, ok := srv.Schema().Table("ks", "t")
			if !ok {
				t.Fatal("the table does not exist")
			}
			start, err := resize(table, time.Now().Add(700*time.Millisecond))
			if err != nil {
				t.Fatalf("resize %d: %v", i, err)
			}
			n = insertUntil(t, s, n, start.Add(200*time.Millisecond))
			got.await(t, n)
		}
		if table, _ := srv.Schema().Table("ks", "t"); srv.Topology().Tablets(table.StoreID) != 32 {
			t.Errorf("%d tablets, want 32", srv.Topology().Tablets(table.StoreID))
		}
	})
}

// An hour with the reader's own delays and windows.
func TestCDCReader_VirtualTime(t *testing.T) {
	readerBubble(t, scyllafake.Config{Version: "5.1", Tokens: 4}, func(t *testing.T, _ *scyllafake.Server, s *gocql.Session) {
		c := &changes{seen: map[int]int{}, more: make(chan struct{}, 1)}
		r, err := scyllacdc.NewReader(t.Context(), &scyllacdc.ReaderConfig{
			Session: s, TableNames: []string{"ks.t"},
			ChangeConsumerFactory: scyllacdc.MakeChangeConsumerFactoryFromFunc(c.add),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		n := 0
		for start := time.Now(); time.Since(start) < time.Hour; time.Sleep(time.Minute) {
			insert(t, s, n, n+5)
			n += 5
		}
		time.Sleep(5 * time.Minute)
		c.await(t, n)
		stop()
		<-done
	})
}
