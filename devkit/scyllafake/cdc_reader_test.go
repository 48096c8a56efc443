package scyllafake_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// delivery is the part of a log that a reader passes to its consumers.
type delivery struct {
	mu      sync.Mutex
	rows    map[[2]int]int  // how often each (k, seq) came
	order   map[int][]int   // the seq of each k in the order they came
	streams map[string]bool // with changes
	ended   int             // consumers that received the end of their streams
	begun   map[string]int  // consumers of a stream
	failed  []string
}

func (d *delivery) CreateChangeConsumer(_ context.Context, in scyllacdc.CreateChangeConsumerInput) (scyllacdc.ChangeConsumer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begun[string(in.StreamID)]++
	return d, nil
}

func (d *delivery) Consume(_ context.Context, change scyllacdc.Change) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.streams[string(change.StreamID)] = true
	for _, row := range change.Delta {
		k, ok1 := row.GetValue("k")
		seq, ok2 := row.GetValue("seq")
		if !ok1 || !ok2 || row.GetOperation() != scyllacdc.Insert {
			d.failed = append(d.failed, fmt.Sprintf("row %v", row))
			continue
		}
		kv, sv := *k.(*int), *seq.(*int)
		d.rows[[2]int{kv, sv}]++
		d.order[kv] = append(d.order[kv], sv)
	}
	return nil
}

func (d *delivery) End() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended++
	return nil
}

// readThrough runs an unmodified scylla-cdc-go reader with its default
// windows while rows are written for some minutes, one batch a second, and
// step is called each second. It fails unless every row comes once, and the
// rows of a key in order.
func readThrough(t *testing.T, cfg scyllafake.Config, keyspace string, minutes int, step func(srv *scyllafake.Server, second int)) (d *delivery) {
	t.Helper()
	emptyPools()
	defer emptyPools()
	d = &delivery{rows: map[[2]int]int{}, order: map[int][]int{}, streams: map[string]bool{}, begun: map[string]int{}}
	synctest.Test(t, func(t *testing.T) {
		cfg.Seed = seeds.Of(t)
		srv, err := scyllafake.Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
		c := gocql.NewCluster("127.0.0.1")
		c.Dialer = srv
		s, err := c.CreateSession()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		exec(t, s, keyspace, "CREATE TABLE ks.outbox (k int, seq int, v text, PRIMARY KEY (k, seq)) WITH cdc = {'enabled': true}")
		progress, err := scyllacdc.NewTableBackedProgressManager(s, "ks.progress", "test")
		if err != nil {
			t.Fatal(err)
		}
		reader, err := scyllacdc.NewReader(t.Context(), &scyllacdc.ReaderConfig{
			Session: s, TableNames: []string{"ks.outbox"}, ChangeConsumerFactory: d, ProgressManager: progress,
		})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- reader.Run(t.Context()) }()

		written := 0
		for second := range 60 * minutes {
			step(srv, second)
			b := s.Batch(gocql.LoggedBatch)
			for k := range 3 {
				for seq := range 2 {
					b.Query("INSERT INTO ks.outbox (k, seq, v) VALUES (?, ?, 'x')", (second+k)%40, 2*second+seq)
					written++
				}
			}
			if err := s.ExecuteBatch(b); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		reader.StopAt(time.Now())
		if err := <-done; err != nil {
			t.Errorf("Run() error = %v", err)
		}
		if len(d.rows) != written {
			t.Errorf("%d rows were delivered, want %d", len(d.rows), written)
		}
	})
	for row, n := range d.rows {
		if n != 1 {
			t.Errorf("row %v was delivered %d times", row, n)
		}
	}
	for k, seqs := range d.order {
		for i := 1; i < len(seqs); i++ {
			if seqs[i] < seqs[i-1] {
				t.Fatalf("rows of key %d came in the order %v", k, seqs)
			}
		}
	}
	for _, f := range d.failed {
		t.Error(f)
	}
	return d
}

// A reader across two generation switches.
func TestReader_Generations(t *testing.T) {
	for _, shards := range []int{1, 2} {
		t.Run(fmt.Sprintf("shards=%d", shards), func(t *testing.T) {
			d := readThrough(t, scyllafake.Config{Version: "5.1", Tokens: 4, Shards: shards, RingDelay: 2 * time.Second}, createKS, 4, func(srv *scyllafake.Server, second int) {
				if second == 50 || second == 130 {
					if _, err := srv.Faults().Node().NewGeneration(faults.Generation{ExtraTokens: second / 50}); err != nil {
						t.Error(err)
					}
				}
			})
			if want := (4 + 5 + 6) * shards; len(d.begun) != want || d.ended != want {
				t.Errorf("%d streams were read and %d ended, want %d", len(d.begun), d.ended, want)
			}
		})
	}
}

// A reader of a table with tablets, across a split and a merge.
func TestReader_Tablets(t *testing.T) {
	cfg := scyllafake.Config{Version: "2025.4", RingDelay: 2 * time.Second}
	tablets := 0
	d := readThrough(t, cfg, createKS+" AND tablets = {'enabled': true, 'initial': 4}", 5, func(srv *scyllafake.Server, second int) {
		node := srv.Faults().Node()
		resize := faults.Resize{Keyspace: "ks", Table: "outbox"}
		var err error
		switch second {
		case 0:
			tablets, err = node.Tablets("ks", "outbox")
		case 50:
			_, err = node.Resize(resize)
		case 140:
			resize.Merge = true
			_, err = node.Resize(resize)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if tablets != 4 {
		t.Errorf("%d tablets at first, want 4", tablets)
	}
	if want := 4 + 8 + 4; len(d.begun) != want || d.ended != want {
		t.Errorf("%d streams were read and %d ended, want %d", len(d.begun), d.ended, want)
	}
}
