package cdc

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

func TestAugment_TimesAndStreams(t *testing.T) {
	t.Parallel()
	f := setup(t, table(t, catalog.CDC{TTLSeconds: 600}, "k int key", "v int"))
	plain := catalog.NewTable("ks", "plain")
	other := &store.Mutation{Table: plain, Deleted: store.Deletion{Set: true, Timestamp: 1}}
	muts := []*store.Mutation{f.mutation(1, `+ v=1`, t0), other, f.mutation(2, `+ v=1`, t0), f.mutation(1, `+ v=1`, t0)}
	logs, err := f.manager.Augment(muts, now)
	if err != nil {
		t.Fatal(err)
	}
	if len(logs) != 3 {
		t.Fatalf("%d log mutations, want 3: none for a table without CDC, whatever its timestamp", len(logs))
	}
	times := map[string]bool{}
	for i, m := range logs {
		base := muts[[]int{0, 2, 3}[i]]
		id, err := f.topology.VnodeStream(base.Token, t0, now)
		if err != nil || string(m.Key) != string(id[:]) {
			t.Errorf("row %d went to stream %x, want %x", i, m.Key, *id)
		}
		at := m.Rows[0].Clustering[0]
		times[string(at)] = true
		if cqltype.TimeUUIDMicros(at) != t0 || at[6]>>4 != 1 {
			t.Errorf("cdc$time %x is not of %d", at, t0)
		}
		for _, d := range m.Rows[0].Columns {
			if d.Cell.TTL != 600 || d.Cell.Expiry != now.Unix()+600 {
				t.Errorf("%s has TTL %d, expiry %d", f.log.ByID[d.ID].Name, d.Cell.TTL, d.Cell.Expiry)
			}
		}
	}
	if len(times) != 3 {
		t.Error("partitions, or two executions of one write, share a cdc$time")
	}
}

// Of two changes of one microsecond the seed decides which comes first.
func TestAugment_SeedDecidesTheOrder(t *testing.T) {
	t.Parallel()
	times := func(seed uint64) (all []string) {
		f := setup(t, table(t, catalog.CDC{}, "k int key", "v int"))
		f.manager.source.state.Store(seed)
		for k := range 20 {
			logs, err := f.manager.Augment([]*store.Mutation{f.mutation(k, `+ v=1`, t0)}, now)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(logs[0].Rows[0].Clustering[0]))
		}
		return all
	}
	one, again, two := times(1), times(1), times(2)
	if !slices.Equal(one, again) || slices.Equal(one, two) {
		t.Errorf("times %x, by the same seed %x, by another one %x", one, again, two)
	}
	if slices.IsSorted(one) {
		t.Error("the first change always comes first")
	}
}

func TestAugment_RefusesTheWholeWrite(t *testing.T) {
	t.Parallel()
	f := setup(t, table(t, catalog.CDC{}, "k int key", "c int clustering", "v int"))
	g := f.topology.Generations()[0].Start().UnixMicro()
	for _, tt := range []struct {
		name string
		muts []*store.Mutation
		want string
	}{
		{"one of two partitions", []*store.Mutation{f.mutation(1, `+1 v=1`, t0), f.mutation(2, `+1 v=1`, g-1)}, "earlier generation"},
		{"one of two timestamps", []*store.Mutation{f.mutation(1, `+1 v=1; +2 v=1 @9000000`, t0)}, "from the future"},
		{"a deletion", []*store.Mutation{f.mutation(1, `!`, g-1)}, "earlier generation"},
	} {
		logs, err := f.manager.Augment(tt.muts, now)
		var ce *cqlerr.Error
		if !errors.As(err, &ce) || ce.Code != cqlerr.Invalid || !strings.Contains(ce.Message, tt.want) || logs != nil {
			t.Errorf("%s: %v, %v, want 2200 %s", tt.name, logs, err, tt.want)
		}
	}
}

func TestAugment_Tablets(t *testing.T) {
	t.Parallel()
	f := setup(t, table(t, catalog.CDC{}, "k int key", "v int"))
	f.schema.Keyspaces["ks"].Tablets = true
	if _, err := f.manager.Augment([]*store.Mutation{f.mutation(1, `+ v=1`, t0)}, now); err == nil {
		t.Fatal("a table without streams is written to")
	}
}

func TestAugment_LogLostAColumn(t *testing.T) {
	t.Parallel()
	f := setup(t, table(t, catalog.CDC{}, baseColumns...))
	log := f.log.Clone()
	log.Remove("a")
	f.schema = f.schema.Clone()
	f.schema.Keyspaces["ks"] = f.schema.Keyspaces["ks"].Clone()
	f.schema.Keyspaces["ks"].Tables[log.Name] = log
	f.log = log
	f.write(1, `+1 b="x"`)
	_, err := f.manager.Augment([]*store.Mutation{f.mutation(7, `+1 a=7`, t0)}, now)
	var ce *cqlerr.Error
	if !errors.As(err, &ce) || ce.Message != "CDC log schema for ks.base_scylla_cdc_log does not have base column a" {
		t.Errorf("Augment() error = %v", err)
	}
}

// A statement bound to an older version of the table still finds its log.
func TestAugment_OldVersionOfTheTable(t *testing.T) {
	t.Parallel()
	f := setup(t, table(t, catalog.CDC{}, "k int key", "v int", "w int"))
	old := f.mutation(1, `+ v=1`, t0)
	changed := f.base.Clone()
	changed.Remove("w")
	f.attach(changed, f.log)
	logs, err := f.manager.Augment([]*store.Mutation{old}, now)
	if err != nil || len(logs) != 1 {
		t.Fatalf("Augment() = %v, %v", logs, err)
	}
	f.schema = &catalog.Schema{Keyspaces: map[string]*catalog.Keyspace{"ks": {Tables: map[string]*catalog.Table{changed.Name: changed}}}}
	if _, err := f.manager.Augment([]*store.Mutation{old}, now); err == nil {
		t.Error("a write is logged though the log was dropped")
	}
	// A write decided while CDC was on is not logged once it is off.
	off := changed.Clone()
	off.CDC.Enabled = false
	f.schema = &catalog.Schema{Keyspaces: map[string]*catalog.Keyspace{"ks": {Tables: map[string]*catalog.Table{off.Name: off}}}}
	if logs, err := f.manager.Augment([]*store.Mutation{old}, now); err != nil || logs != nil {
		t.Errorf("Augment() without CDC = %v, %v", logs, err)
	}
}

// The log contains the rows as they were made.
func TestAugment_ReadBack(t *testing.T) {
	t.Parallel()
	f := setup(t, table(t, catalog.CDC{}, baseColumns...))
	f.write(1, `+2 a=2; -3; [9 5]`)
	it, err := f.store.Scan(store.Scan{Table: f.log, MinToken: -1 << 63, MaxToken: 1<<63 - 1})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	var ops []byte
	for it.NextPartition() {
		for it.NextRow() {
			ops = append(ops, it.Row().Column(f.log.ByName[ColOperation].ID).Cell.Value[0])
		}
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	if want := string([]byte{2, 3, 5, 7}); string(ops) != want {
		t.Errorf("operations %v in the log, want %v", ops, []byte(want))
	}
}

// BenchmarkAugment_Insert is the hot path: an outbox row.
func BenchmarkAugment_Insert(b *testing.B) {
	f := setup(b, table(b, catalog.CDC{TTLSeconds: 86400}, "id text key", "seq bigint clustering", "event_id uuid clustering",
		"type text", "payload blob", "content_type text", "headers frozen<map<text, text>>", "created_at timestamp"))
	key := []byte("order-1")
	cell := func(v string) *store.Cell { return &store.Cell{Timestamp: t0, Value: []byte(v)} }
	row := store.Row{
		Clustering: [][]byte{cqltype.EncodeInt64(1), make([]byte, 16)},
		Marker:     &store.Cell{Timestamp: t0},
	}
	for _, c := range f.base.Columns()[3:] {
		row.Columns = append(row.Columns, store.ColumnData{ID: c.ID, Cell: cell("a value")})
	}
	slices.SortFunc(row.Columns, func(a, b store.ColumnData) int { return int(a.ID - b.ID) })
	muts := []*store.Mutation{{Table: f.base, Key: key, Token: f.base.Token(key), Rows: []store.Row{row}}}
	at := now.Add(time.Millisecond)
	b.ReportAllocs()
	for b.Loop() {
		logs, err := f.manager.Augment(muts, at)
		if err != nil || len(logs) != 1 {
			b.Fatal(logs, err)
		}
	}
}
