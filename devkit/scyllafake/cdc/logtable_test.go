package cdc

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// describe lists a table's columns by name as system_schema.columns does.
func describe(t *catalog.Table) []string {
	var out []string
	for _, c := range t.Columns() {
		kind := [...]string{"partition_key", "clustering", "static", "regular"}[c.Kind]
		out = append(out, strings.Join([]string{c.Name, kind, c.Type.String()}, " | "))
	}
	slices.Sort(out)
	return out
}

func makeLogTable(t *testing.T, base, existing *catalog.Table) *catalog.Table {
	t.Helper()
	log, err := LogTable(base, existing, Ident{ID: uuid.New(), StoreID: 9}, t0)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// As recorded in case E1.
func TestLogTable_Columns(t *testing.T) {
	t.Parallel()
	base := table(t, catalog.CDC{}, "p1 int key", "p2 text key", "c1 int clustering", "st int static", "v int", "l list<int>",
		"se set<text>", "m map<text, int>", "fl frozen<list<int>>", "tu tuple<int, text>", "Mixed int")
	want := []string{
		"Mixed | regular | int",
		"c1 | regular | int",
		"cdc$batch_seq_no | clustering | int",
		"cdc$deleted_Mixed | regular | boolean",
		"cdc$deleted_elements_l | regular | frozen<set<timeuuid>>",
		"cdc$deleted_elements_m | regular | frozen<set<text>>",
		"cdc$deleted_elements_se | regular | frozen<set<text>>",
		"cdc$deleted_fl | regular | boolean",
		"cdc$deleted_l | regular | boolean",
		"cdc$deleted_m | regular | boolean",
		"cdc$deleted_se | regular | boolean",
		"cdc$deleted_st | regular | boolean",
		"cdc$deleted_tu | regular | boolean",
		"cdc$deleted_v | regular | boolean",
		"cdc$end_of_batch | regular | boolean",
		"cdc$operation | regular | tinyint",
		"cdc$stream_id | partition_key | blob",
		"cdc$time | clustering | timeuuid",
		"cdc$ttl | regular | bigint",
		"fl | regular | frozen<list<int>>",
		"l | regular | frozen<map<timeuuid, int>>",
		"m | regular | frozen<map<text, int>>",
		"p1 | regular | int",
		"p2 | regular | text",
		"se | regular | frozen<set<text>>",
		"st | regular | int",
		"tu | regular | frozen<tuple<int, text>>",
		"v | regular | int",
	}
	log := makeLogTable(t, base, nil)
	if got := describe(log); !slices.Equal(got, want) {
		t.Errorf("columns:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if log.Kind != catalog.CDCLog || log.Name != "base_scylla_cdc_log" || log.CDC != nil || log.StoreID != 9 {
		t.Errorf("log = %+v", log)
	}
	if len(log.ByID) != len(want) || len(log.ByName) != len(want) {
		t.Errorf("%d columns by ID, %d by name, want %d", len(log.ByID), len(log.ByName), len(want))
	}
	for _, c := range log.Columns() {
		if log.ByName[c.Name] != c || log.ByID[c.ID] != c {
			t.Errorf("column %s is not found", c.Name)
		}
	}
	if !slices.IsSortedFunc(log.Regulars, func(a, b *catalog.Column) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("regular columns are not in order of name")
	}
}

func TestLogTable_OptionsFollowTheTTL(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[int64][2]string{1: {"1", "1"}, 60: {"1", "1"}, 600: {"1", "12"}, 3600: {"3", "75"}, 86400: {"60", "1800"}, 10_000_000: {"6945", "208333"}} {
		o := makeLogTable(t, table(t, catalog.CDC{TTLSeconds: ttl}, "k int key"), nil).Options
		if o.GCGraceSeconds != 0 || o.DefaultTTL != 0 || o.Comment != "CDC log for ks.base" || o.Partitioner != catalog.CDCPartitioner {
			t.Errorf("ttl %d: options %+v", ttl, o)
		}
		if !maps.Equal(o.Compaction, map[string]string{
			"class": "TimeWindowCompactionStrategy", "compaction_window_unit": "MINUTES",
			"compaction_window_size": want[0], "expired_sstable_check_frequency_seconds": want[1],
		}) {
			t.Errorf("ttl %d: compaction %v", ttl, o.Compaction)
		}
	}
	o := makeLogTable(t, table(t, catalog.CDC{}, "k int key"), nil).Options
	if o.GCGraceSeconds != 864000 || !maps.Equal(o.Compaction, map[string]string{"class": "TimeWindowCompactionStrategy"}) {
		t.Errorf("without ttl: %+v", o)
	}
	if !maps.Equal(o.Caching, map[string]string{"enabled": "false", "keys": "NONE", "rows_per_partition": "NONE"}) {
		t.Errorf("caching %v", o.Caching)
	}
}

// As recorded in cases E14 and E15: columns follow the base, the ids stay.
func TestLogTable_FollowsItsBase(t *testing.T) {
	t.Parallel()
	base := table(t, catalog.CDC{}, "p int key", "c int clustering", "v int", "w text")
	log := makeLogTable(t, base, nil)
	v, w := log.ByName["v"].ID, log.ByName["w"].ID

	added := base.Clone()
	added.Add(catalog.Column{Name: "x", Type: cqltype.NewList(cqltype.TInt), Kind: catalog.Regular})
	log2 := makeLogTable(t, added, log)
	if log2.ID != log.ID || log2.StoreID != log.StoreID || log2.ByName["v"].ID != v {
		t.Error("ids changed")
	}
	for _, name := range []string{"x", "cdc$deleted_x", "cdc$deleted_elements_x"} {
		if c := log2.ByName[name]; c == nil || log.ByID[c.ID] != nil {
			t.Errorf("column %s is missing or has an old id", name)
		}
	}

	dropped := added.Clone()
	dropped.Remove("w")
	log3 := makeLogTable(t, dropped, log2)
	var names []string
	for _, d := range log3.Dropped {
		names = append(names, d.Name)
		if d.DroppedTime != t0 {
			t.Errorf("%s dropped at %d", d.Name, d.DroppedTime)
		}
	}
	if slices.Sort(names); !slices.Equal(names, []string{"cdc$deleted_w", "w"}) || log3.ByName["w"] != nil || log2.ByName["w"] == nil {
		t.Errorf("dropped %v", names)
	}

	again := dropped.Clone()
	again.Add(catalog.Column{Name: "w", Type: cqltype.TText, Kind: catalog.Regular})
	log4 := makeLogTable(t, again, log3)
	if log4.ByName["w"].ID == w {
		t.Error("a column added again has its old id, and would show old values")
	}
	if len(log4.Dropped) != 2 {
		t.Errorf("dropped columns %v, want both still", log4.Dropped)
	}

	changed := again.Clone()
	// Without CDC a column can come back with another type: nothing of the old one may be read.
	changed.ByName["v"].Type = cqltype.TDouble
	if got := makeLogTable(t, changed, log4).ByName["v"]; got.ID == v {
		t.Error("an int is read as a double")
	}
}

func TestLogTable_Names(t *testing.T) {
	t.Parallel()
	for _, name := range []string{ColStreamID, ColTime, ColBatchSeqNo, ColOperation, ColTTL, ColEndOfBatch} {
		if _, err := LogTable(table(t, catalog.CDC{}, "k int key", name+" int"), nil, Ident{}, t0); err == nil {
			t.Errorf("a column %s is taken", name)
		}
	}
	// Recorded: a name that another column's deleted-column has is shared with it.
	base := table(t, catalog.CDC{}, "k int key", "v int", "cdc$deleted_v int", "cdc$foo int")
	log := makeLogTable(t, base, nil)
	if got := log.ByName["cdc$deleted_v"].Type.Kind; got != cqltype.Boolean {
		t.Errorf("cdc$deleted_v is %v, want boolean", got)
	}
	if log.ByName["cdc$deleted_cdc$deleted_v"] == nil || log.ByName["cdc$foo"] == nil {
		t.Error("columns are missing")
	}
	f := setup(t, base)
	if got, want := f.write(2, `+ v=null cdc$deleted_v=1`), []string{"seq 0 op 2 cdc$deleted_v=true cdc$end_of_batch=true k=2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
