package cdc

import (
	"slices"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/test/cqlvalue"
)

// step is a write and the log rows that a real node was recorded to make of
// it (test/testdata/golden, cases E3 to E11).
type step struct {
	name string
	pk   int
	ops  string
	want []string
}

func play(t *testing.T, base *catalog.Table, steps []step) {
	t.Helper()
	f := setup(t, base)
	for _, s := range steps {
		if got := f.write(s.pk, s.ops); !slices.Equal(got, s.want) {
			t.Errorf("%s (%s):\ngot  %s\nwant %s", s.name, s.ops, strings.Join(got, "\n     "), strings.Join(s.want, "\n     "))
		}
	}
}

func TestAugment_PlainWrites(t *testing.T) {
	t.Parallel()
	play(t, table(t, catalog.CDC{}, baseColumns...), []step{
		{"insert", 101, `+1 a=1 b="x"`, []string{"seq 0 op 2 a=1 b='x' cdc$end_of_batch=true ck=1 pk=101"}},
		{"insert null", 102, `+1 a=1 b=null`, []string{"seq 0 op 2 a=1 cdc$deleted_b=true cdc$end_of_batch=true ck=1 pk=102"}},
		{"insert keys", 103, `+1`, []string{"seq 0 op 2 cdc$end_of_batch=true ck=1 pk=103"}},
		{"insert static", 104, `s s="s"`, []string{"seq 0 op 1 cdc$end_of_batch=true pk=104 s='s'"}},
		{"insert both", 105, `s s="s"; +1 a=1`, []string{
			"seq 0 op 1 pk=105 s='s'",
			"seq 1 op 2 a=1 cdc$end_of_batch=true ck=1 pk=105",
		}},
		{"update", 106, `~1 a=2`, []string{"seq 0 op 1 a=2 cdc$end_of_batch=true ck=1 pk=106"}},
		{"update null", 107, `~1 a=null`, []string{"seq 0 op 1 cdc$deleted_a=true cdc$end_of_batch=true ck=1 pk=107"}},
		{"update static", 108, `s s="t"`, []string{"seq 0 op 1 cdc$end_of_batch=true pk=108 s='t'"}},
		{"update both", 109, `s s="t"; ~1 a=3`, []string{
			"seq 0 op 1 pk=109 s='t'",
			"seq 1 op 1 a=3 cdc$end_of_batch=true ck=1 pk=109",
		}},
		{"update nothing", 111, `~1`, nil},
		{"empty text", 113, `+1 b=""`, []string{"seq 0 op 2 b='' cdc$end_of_batch=true ck=1 pk=113"}},
	})
}

func TestAugment_Deletes(t *testing.T) {
	t.Parallel()
	play(t, table(t, catalog.CDC{}, baseColumns...), []step{
		{"column", 201, `~1 a=null`, []string{"seq 0 op 1 cdc$deleted_a=true cdc$end_of_batch=true ck=1 pk=201"}},
		{"static column", 202, `s s=null`, []string{"seq 0 op 1 cdc$deleted_s=true cdc$end_of_batch=true pk=202"}},
		{"row", 203, `-1`, []string{"seq 0 op 3 cdc$end_of_batch=true ck=1 pk=203"}},
		{"partition", 204, `!`, []string{"seq 0 op 4 cdc$end_of_batch=true pk=204"}},
		{"range, descending: it starts with the larger", 205, `[5 1)`, []string{
			"seq 0 op 5 ck=5 pk=205", "seq 1 op 8 cdc$end_of_batch=true ck=1 pk=205",
		}},
		{"open start", 206, `[ 1]`, []string{"seq 0 op 5 pk=206", "seq 1 op 7 cdc$end_of_batch=true ck=1 pk=206"}},
		{"open end", 207, `(5 ]`, []string{"seq 0 op 6 ck=5 pk=207", "seq 1 op 7 cdc$end_of_batch=true pk=207"}},
		{"rows", 209, `-3; -1; -2`, []string{
			"seq 0 op 3 ck=3 pk=209", "seq 1 op 3 ck=2 pk=209", "seq 2 op 3 cdc$end_of_batch=true ck=1 pk=209",
		}},
	})
}

func TestAugment_DeletesWithoutClusteringKey(t *testing.T) {
	t.Parallel()
	play(t, table(t, catalog.CDC{}, "k int key", "v int"), []step{
		{"partition", 1, `!`, []string{"seq 0 op 4 cdc$end_of_batch=true k=1"}},
		{"the row", 1, `-`, []string{"seq 0 op 4 cdc$end_of_batch=true k=1"}},
		{"column", 2, `~ v=null`, []string{"seq 0 op 1 cdc$deleted_v=true cdc$end_of_batch=true k=2"}},
		{"insert", 3, `+ v=1`, []string{"seq 0 op 2 cdc$end_of_batch=true k=3 v=1"}},
	})
}

func TestAugment_RangesOfMixedOrder(t *testing.T) {
	t.Parallel()
	play(t, table(t, catalog.CDC{}, "p int key", "c1 int clustering", "c2 int desc", "v int"), []step{
		{"prefix", 1, `[1 1]`, []string{"seq 0 op 5 c1=1 p=1", "seq 1 op 7 c1=1 cdc$end_of_batch=true p=1"}},
		{"in the last column", 2, `[1 1,3)`, []string{"seq 0 op 5 c1=1 p=2", "seq 1 op 8 c1=1 c2=3 cdc$end_of_batch=true p=2"}},
		{"two ranges that do not meet", 4, `[1 1,2); (1 5)`, []string{
			"seq 0 op 5 c1=1 p=4", "seq 1 op 8 c1=1 c2=2 p=4", "seq 2 op 6 c1=1 p=4", "seq 3 op 8 c1=5 cdc$end_of_batch=true p=4",
		}},
		{"two prefixes", 6, `[1 1]; [2 2]`, []string{
			"seq 0 op 5 c1=1 p=6", "seq 1 op 7 c1=1 p=6", "seq 2 op 5 c1=2 p=6", "seq 3 op 7 c1=2 cdc$end_of_batch=true p=6",
		}},
		{"two rows", 7, `-1,1; -1,2`, []string{"seq 0 op 3 c1=1 c2=2 p=7", "seq 1 op 3 c1=1 c2=1 cdc$end_of_batch=true p=7"}},
		{"one row", 8, `-1,1`, []string{"seq 0 op 3 c1=1 c2=1 cdc$end_of_batch=true p=8"}},
		{"open side", 9, `(1,3 1]`, []string{"seq 0 op 6 c1=1 c2=3 p=9", "seq 1 op 7 c1=1 cdc$end_of_batch=true p=9"}},
	})
}

func TestAugment_TTL(t *testing.T) {
	t.Parallel()
	play(t, table(t, catalog.CDC{TTLSeconds: 600}, baseColumns...), []step{
		{"insert", 1, `+1 a=1 /100`, []string{"seq 0 op 2 a=1 cdc$end_of_batch=true cdc$ttl=100 ck=1 pk=1"}},
		{"insert with a null", 4, `+1 a=1 b=null /50`, []string{
			"seq 0 op 2 a=1 cdc$ttl=50 ck=1 pk=4", "seq 1 op 1 cdc$deleted_b=true cdc$end_of_batch=true ck=1 pk=4",
		}},
		{"update with a null", 5, `~1 a=2 b=null /50`, []string{
			"seq 0 op 1 cdc$deleted_b=true ck=1 pk=5", "seq 1 op 1 a=2 cdc$end_of_batch=true cdc$ttl=50 ck=1 pk=5",
		}},
		{"both", 1, `s s="s" /70; +1 a=1 b="x" /70`, []string{
			"seq 0 op 1 cdc$ttl=70 pk=1 s='s'", "seq 1 op 2 a=1 b='x' cdc$end_of_batch=true cdc$ttl=70 ck=1 pk=1",
		}},
		{"static", 2, `s s="s" /70`, []string{"seq 0 op 1 cdc$end_of_batch=true cdc$ttl=70 pk=2 s='s'"}},
		{"both, with a null", 3, `s s="s" /70; ~1 a=null /70`, []string{
			"seq 0 op 1 cdc$ttl=70 pk=3 s='s'", "seq 1 op 1 cdc$deleted_a=true cdc$end_of_batch=true ck=1 pk=3",
		}},
		{"keys", 4, `+1 /70`, []string{"seq 0 op 2 cdc$end_of_batch=true cdc$ttl=70 ck=1 pk=4"}},
		{"null alone", 5, `~1 a=null /70`, []string{"seq 0 op 1 cdc$deleted_a=true cdc$end_of_batch=true ck=1 pk=5"}},
	})
}

func TestAugment_Collections(t *testing.T) {
	t.Parallel()
	play(t, table(t, catalog.CDC{}, "k int key", "c int clustering", "m map<text, int>", "se set<int>", "f frozen<map<text, int>>"), []step{
		{"insert", 1, `+1 m={"a":1,"b":2} se=[3,1]`, []string{
			"seq 0 op 2 c=1 cdc$deleted_m=true cdc$deleted_se=true cdc$end_of_batch=true k=1 m={'a': 1, 'b': 2} se={1, 3}",
		}},
		{"add", 2, `~1 m+={"c":3} se+=[9]`, []string{"seq 0 op 1 c=1 cdc$end_of_batch=true k=2 m={'c': 3} se={9}"}},
		{"remove", 6, `~1 m-=["a","b"] se-=[1]`, []string{
			"seq 0 op 1 c=1 cdc$deleted_elements_m={'a', 'b'} cdc$deleted_elements_se={1} cdc$end_of_batch=true k=6",
		}},
		{"null", 7, `~1 m=null`, []string{"seq 0 op 1 c=1 cdc$deleted_m=true cdc$end_of_batch=true k=7"}},
		{"empty", 8, `~1 m={}`, []string{"seq 0 op 1 c=1 cdc$deleted_m=true cdc$end_of_batch=true k=8"}},
		{"replace", 9, `~1 m={"x":1}`, []string{"seq 0 op 1 c=1 cdc$deleted_m=true cdc$end_of_batch=true k=9 m={'x': 1}"}},
		{"frozen", 10, `+1 f={"a":1}`, []string{"seq 0 op 2 c=1 cdc$end_of_batch=true f={'a': 1} k=10"}},
		{"insert with TTL", 11, `+1 m={"a":1} /60`, []string{
			"seq 0 op 2 c=1 cdc$ttl=60 k=11", "seq 1 op 1 c=1 cdc$deleted_m=true k=11",
			"seq 2 op 1 c=1 cdc$end_of_batch=true cdc$ttl=60 k=11 m={'a': 1}",
		}},
		{"insert of two with TTL", 12, `+1 m={"a":1} se=[1] /60`, []string{
			"seq 0 op 2 c=1 cdc$ttl=60 k=12", "seq 1 op 1 c=1 cdc$deleted_m=true cdc$deleted_se=true k=12",
			"seq 2 op 1 c=1 cdc$end_of_batch=true cdc$ttl=60 k=12 m={'a': 1} se={1}",
		}},
		{"replace with TTL", 12, `~1 m={"a":1} /60`, []string{
			"seq 0 op 1 c=1 cdc$deleted_m=true k=12", "seq 1 op 1 c=1 cdc$end_of_batch=true cdc$ttl=60 k=12 m={'a': 1}",
		}},
		{"add with TTL", 13, `~1 m+={"a":1} /60`, []string{"seq 0 op 1 c=1 cdc$end_of_batch=true cdc$ttl=60 k=13 m={'a': 1}"}},
		{"insert and add: an INSERT cannot change elements", 20, `+1 f={}; ~1 m+={"b":2}`, []string{
			"seq 0 op 2 c=1 f={} k=20", "seq 1 op 1 c=1 cdc$end_of_batch=true k=20 m={'b': 2}",
		}},
	})
}

func TestAugment_Lists(t *testing.T) {
	t.Parallel()
	l := table(t, catalog.CDC{}, "k int key", "c int clustering", "l list<int>")
	f := setup(t, l)
	list := f.log.ByName["l"].Type
	paths := strings.NewReplacer("#0", cqlvalue.Format(list.Key, listPath(0)), "#1", cqlvalue.Format(list.Key, listPath(1)))
	play(t, l, []step{
		{"insert", 21, `+1 l=[10,20]`, []string{paths.Replace("seq 0 op 2 c=1 cdc$deleted_l=true cdc$end_of_batch=true k=21 l={#0: 10, #1: 20}")}},
		{"append", 21, `~1 l+=[30]`, []string{paths.Replace("seq 0 op 1 c=1 cdc$end_of_batch=true k=21 l={#0: 30}")}},
		{"remove", 21, paths.Replace(`~1 l-=["#1"]`), []string{paths.Replace("seq 0 op 1 c=1 cdc$deleted_elements_l={#1} cdc$end_of_batch=true k=21")}},
		{"empty", 21, `~1 l=[]`, []string{"seq 0 op 1 c=1 cdc$deleted_l=true cdc$end_of_batch=true k=21"}},
	})
}

func TestAugment_Batches(t *testing.T) {
	t.Parallel()
	play(t, table(t, catalog.CDC{}, baseColumns...), []step{
		{"clustering order, not that of statements", 301, `+3 a=3; +1 a=1; ~2 a=2`, []string{
			"seq 0 op 2 a=3 ck=3 pk=301", "seq 1 op 1 a=2 ck=2 pk=301", "seq 2 op 2 a=1 cdc$end_of_batch=true ck=1 pk=301",
		}},
		{"two updates of a row", 302, `~1 a=1; ~1 b="x"`, []string{"seq 0 op 1 a=1 b='x' cdc$end_of_batch=true ck=1 pk=302"}},
		{"static and rows", 304, `s s="s"; +2 a=1; +1 a=1`, []string{
			"seq 0 op 1 pk=304 s='s'", "seq 1 op 2 a=1 ck=2 pk=304", "seq 2 op 2 a=1 cdc$end_of_batch=true ck=1 pk=304",
		}},
		{"kinds", 305, `+1 a=1; -2; ~3 a=3`, []string{
			"seq 0 op 2 a=1 ck=1 pk=305", "seq 1 op 1 a=3 ck=3 pk=305", "seq 2 op 3 cdc$end_of_batch=true ck=2 pk=305",
		}},
		{"insert and delete of a row", 306, `+1 a=1; -1`, []string{
			"seq 0 op 2 a=1 ck=1 pk=306", "seq 1 op 3 cdc$end_of_batch=true ck=1 pk=306",
		}},
		{"partition delete and insert", 307, `!; +1 a=1`, []string{
			"seq 0 op 2 a=1 ck=1 pk=307", "seq 1 op 4 cdc$end_of_batch=true pk=307",
		}},
		{"range, row, insert", 308, `[ 1); -1; +9 a=1`, []string{
			"seq 0 op 2 a=1 ck=9 pk=308", "seq 1 op 3 ck=1 pk=308", "seq 2 op 5 pk=308", "seq 3 op 8 cdc$end_of_batch=true ck=1 pk=308",
		}},
		{"one of each", 334, `s s=null; ~1 a=null; -2; [ 5); !`, []string{
			"seq 0 op 1 cdc$deleted_s=true pk=334", "seq 1 op 1 cdc$deleted_a=true ck=1 pk=334", "seq 2 op 3 ck=2 pk=334",
			"seq 3 op 5 pk=334", "seq 4 op 8 ck=5 pk=334", "seq 5 op 4 cdc$end_of_batch=true pk=334",
		}},
		{"a delete before an insert does not split", 323, `+1 a=1; -2`, []string{
			"seq 0 op 3 ck=2 pk=323", "seq 1 op 2 a=1 cdc$end_of_batch=true ck=1 pk=323",
		}},
		{"TTLs", 331, `+1 a=1 /100; +2 a=1 /50; +3 a=1`, []string{
			"seq 0 op 2 a=1 ck=3 pk=331", "seq 1 op 2 a=1 cdc$ttl=50 ck=2 pk=331", "seq 2 op 2 a=1 cdc$end_of_batch=true cdc$ttl=100 ck=1 pk=331",
		}},
		{"TTLs in one row", 332, `~1 a=1 /100; ~1 b="x" /50`, []string{
			"seq 0 op 1 b='x' cdc$ttl=50 ck=1 pk=332", "seq 1 op 1 a=1 cdc$end_of_batch=true cdc$ttl=100 ck=1 pk=332",
		}},
		{"timestamps", 321, `+1 a=1 @2; +2 a=1 @1`, []string{
			"seq 0 op 2 a=1 cdc$end_of_batch=true ck=2 pk=321", "--", "seq 0 op 2 a=1 cdc$end_of_batch=true ck=1 pk=321",
		}},
	})
}

func TestAugment_DeltaKeys(t *testing.T) {
	t.Parallel()
	play(t, table(t, catalog.CDC{DeltaKeys: true}, baseColumns...), []step{
		{"insert", 101, `+1 a=1 b="x"`, []string{"seq 0 op 2 cdc$end_of_batch=true ck=1 pk=101"}},
		{"both", 105, `s s="s"; +1 a=1`, []string{"seq 0 op 1 pk=105", "seq 1 op 2 cdc$end_of_batch=true ck=1 pk=105"}},
		{"range", 205, `[5 1)`, []string{"seq 0 op 5 ck=5 pk=205", "seq 1 op 8 cdc$end_of_batch=true ck=1 pk=205"}},
	})
}
