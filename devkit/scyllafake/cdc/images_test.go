package cdc

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
)

var imageColumns = []string{"p int key", "c int clustering", "s int static", "a int", "b int", "m map<int, int>"}

// imageWrites are the block "images" of the recorded cases E10 and E11.
var imageWrites = []struct {
	pk  int
	ops string
}{
	{1, `+1 a=1 b=1`},
	{1, `~1 a=2`},
	{1, `~1 m+={"1":1}`},
	{1, `~1 m-=[1]`},
	{1, `~1 m={"2":2}`},
	{1, `s s=5`},
	{1, `s s=6; +1 a=null`},
	{1, `~1 a=null`},
	{1, `-1`},
	{1, `-1`},
	{1, `(0 ]`},
	{1, `!`},
	{2, `~1 a=1; ~2 b=1`},
	{2, `~1 a=2; ~2 b=2`},
	{4, `+1 a=1 /100`},
	{4, `~1 b=2`},
	{3, `+1 a=1; -2`},
	{321, `+1 a=1 @2; +2 a=1 @1`},
	{322, `+1 a=1 @1; +1 b=2 @2`},
}

func TestAugment_Images(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		cdc  catalog.CDC
		want [][]string
	}{
		{"preimage", catalog.CDC{Preimage: catalog.ImageOn}, [][]string{
			{"seq 0 op 2 a=1 b=1 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 0 a=1 c=1 p=1", "seq 1 op 1 a=2 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 0 c=1 cdc$deleted_m=true p=1", "seq 1 op 1 c=1 cdc$end_of_batch=true m={1: 1} p=1"},
			{"seq 0 op 0 c=1 m={1: 1} p=1", "seq 1 op 1 c=1 cdc$deleted_elements_m={1} cdc$end_of_batch=true p=1"},
			{"seq 0 op 0 c=1 cdc$deleted_m=true p=1", "seq 1 op 1 c=1 cdc$deleted_m=true cdc$end_of_batch=true m={2: 2} p=1"},
			{"seq 0 op 1 cdc$end_of_batch=true p=1 s=5"},
			{"seq 0 op 0 p=1 s=5", "seq 1 op 0 a=2 c=1 p=1", "seq 2 op 1 p=1 s=6", "seq 3 op 2 c=1 cdc$deleted_a=true cdc$end_of_batch=true p=1"},
			{"seq 0 op 0 c=1 cdc$deleted_a=true p=1", "seq 1 op 1 c=1 cdc$deleted_a=true cdc$end_of_batch=true p=1"},
			{"seq 0 op 0 b=1 c=1 cdc$deleted_a=true m={2: 2} p=1", "seq 1 op 3 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 3 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 6 c=0 p=1", "seq 1 op 7 cdc$end_of_batch=true p=1"},
			{"seq 0 op 4 cdc$end_of_batch=true p=1"},
			{"seq 0 op 1 a=1 c=1 p=2", "seq 1 op 1 b=1 c=2 cdc$end_of_batch=true p=2"},
			{"seq 0 op 0 a=1 c=1 p=2", "seq 1 op 0 c=2 cdc$deleted_b=true p=2", "seq 2 op 1 a=2 c=1 p=2", "seq 3 op 1 b=2 c=2 cdc$end_of_batch=true p=2"},
			{"seq 0 op 2 a=1 c=1 cdc$end_of_batch=true cdc$ttl=100 p=4"},
			{"seq 0 op 0 c=1 cdc$deleted_b=true p=4", "seq 1 op 1 b=2 c=1 cdc$end_of_batch=true p=4"},
		}},
		{"full preimage", catalog.CDC{Preimage: catalog.ImageFull}, [][]string{
			{"seq 0 op 2 a=1 b=1 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 0 a=1 b=1 c=1 cdc$deleted_m=true p=1", "seq 1 op 1 a=2 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 0 a=2 b=1 c=1 cdc$deleted_m=true p=1", "seq 1 op 1 c=1 cdc$end_of_batch=true m={1: 1} p=1"},
			{"seq 0 op 0 a=2 b=1 c=1 m={1: 1} p=1", "seq 1 op 1 c=1 cdc$deleted_elements_m={1} cdc$end_of_batch=true p=1"},
			{"seq 0 op 0 a=2 b=1 c=1 cdc$deleted_m=true p=1", "seq 1 op 1 c=1 cdc$deleted_m=true cdc$end_of_batch=true m={2: 2} p=1"},
			{"seq 0 op 1 cdc$end_of_batch=true p=1 s=5"},
			{"seq 0 op 0 p=1 s=5", "seq 1 op 0 a=2 b=1 c=1 m={2: 2} p=1", "seq 2 op 1 p=1 s=6", "seq 3 op 2 c=1 cdc$deleted_a=true cdc$end_of_batch=true p=1"},
			{"seq 0 op 0 b=1 c=1 cdc$deleted_a=true m={2: 2} p=1", "seq 1 op 1 c=1 cdc$deleted_a=true cdc$end_of_batch=true p=1"},
			{"seq 0 op 0 b=1 c=1 cdc$deleted_a=true m={2: 2} p=1", "seq 1 op 3 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 3 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 6 c=0 p=1", "seq 1 op 7 cdc$end_of_batch=true p=1"},
			{"seq 0 op 4 cdc$end_of_batch=true p=1"},
			{"seq 0 op 1 a=1 c=1 p=2", "seq 1 op 1 b=1 c=2 cdc$end_of_batch=true p=2"},
			{
				"seq 0 op 0 a=1 c=1 cdc$deleted_b=true cdc$deleted_m=true p=2", "seq 1 op 0 b=1 c=2 cdc$deleted_a=true cdc$deleted_m=true p=2",
				"seq 2 op 1 a=2 c=1 p=2", "seq 3 op 1 b=2 c=2 cdc$end_of_batch=true p=2",
			},
			{"seq 0 op 2 a=1 c=1 cdc$end_of_batch=true cdc$ttl=100 p=4"},
			{"seq 0 op 0 a=1 c=1 cdc$deleted_b=true cdc$deleted_m=true p=4", "seq 1 op 1 b=2 c=1 cdc$end_of_batch=true p=4"},
		}},
		{"postimage", catalog.CDC{Postimage: true}, [][]string{
			{"seq 0 op 2 a=1 b=1 c=1 p=1", "seq 1 op 9 a=1 b=1 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 1 a=2 c=1 p=1", "seq 1 op 9 a=2 b=1 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 1 c=1 m={1: 1} p=1", "seq 1 op 9 a=2 b=1 c=1 cdc$end_of_batch=true m={1: 1} p=1"},
			{"seq 0 op 1 c=1 cdc$deleted_elements_m={1} p=1", "seq 1 op 9 a=2 b=1 c=1 cdc$end_of_batch=true m={} p=1"},
			{"seq 0 op 1 c=1 cdc$deleted_m=true m={2: 2} p=1", "seq 1 op 9 a=2 b=1 c=1 cdc$end_of_batch=true m={2: 2} p=1"},
			{"seq 0 op 1 p=1 s=5", "seq 1 op 9 cdc$end_of_batch=true p=1 s=5"},
			{"seq 0 op 1 p=1 s=6", "seq 1 op 2 c=1 cdc$deleted_a=true p=1", "seq 2 op 9 p=1 s=6", "seq 3 op 9 b=1 c=1 cdc$end_of_batch=true m={2: 2} p=1"},
			{"seq 0 op 1 c=1 cdc$deleted_a=true p=1", "seq 1 op 9 b=1 c=1 cdc$end_of_batch=true m={2: 2} p=1"},
			{"seq 0 op 3 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 3 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 6 c=0 p=1", "seq 1 op 7 cdc$end_of_batch=true p=1"},
			{"seq 0 op 4 cdc$end_of_batch=true p=1"},
			{"seq 0 op 1 a=1 c=1 p=2", "seq 1 op 1 b=1 c=2 p=2", "seq 2 op 9 a=1 c=1 p=2", "seq 3 op 9 b=1 c=2 cdc$end_of_batch=true p=2"},
			{"seq 0 op 1 a=2 c=1 p=2", "seq 1 op 1 b=2 c=2 p=2", "seq 2 op 9 a=2 c=1 p=2", "seq 3 op 9 b=2 c=2 cdc$end_of_batch=true p=2"},
			{"seq 0 op 2 a=1 c=1 cdc$ttl=100 p=4", "seq 1 op 9 a=1 c=1 cdc$end_of_batch=true p=4"},
			{"seq 0 op 1 b=2 c=1 p=4", "seq 1 op 9 a=1 b=2 c=1 cdc$end_of_batch=true p=4"},
			{"seq 0 op 2 a=1 c=1 p=3", "seq 1 op 3 c=2 p=3", "seq 2 op 9 a=1 c=1 cdc$end_of_batch=true p=3"},
			{
				"seq 0 op 2 a=1 c=2 p=321", "seq 1 op 9 a=1 c=2 cdc$end_of_batch=true p=321", "--",
				"seq 0 op 2 a=1 c=1 p=321", "seq 1 op 9 a=1 c=1 cdc$end_of_batch=true p=321",
			},
			{
				"seq 0 op 1 a=1 c=1 p=322", "seq 1 op 9 a=1 c=1 cdc$end_of_batch=true p=322", "--",
				"seq 0 op 2 b=2 c=1 p=322", "seq 1 op 9 a=1 b=2 c=1 cdc$end_of_batch=true p=322",
			},
		}},
		{"full preimage and postimage", catalog.CDC{Preimage: catalog.ImageFull, Postimage: true}, [][]string{
			{"seq 0 op 2 a=1 b=1 c=1 p=1", "seq 1 op 9 a=1 b=1 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 0 a=1 b=1 c=1 cdc$deleted_m=true p=1", "seq 1 op 1 a=2 c=1 p=1", "seq 2 op 9 a=2 b=1 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 0 a=2 b=1 c=1 cdc$deleted_m=true p=1", "seq 1 op 1 c=1 m={1: 1} p=1", "seq 2 op 9 a=2 b=1 c=1 cdc$end_of_batch=true m={1: 1} p=1"},
			{"seq 0 op 0 a=2 b=1 c=1 m={1: 1} p=1", "seq 1 op 1 c=1 cdc$deleted_elements_m={1} p=1", "seq 2 op 9 a=2 b=1 c=1 cdc$end_of_batch=true m={} p=1"},
			{"seq 0 op 0 a=2 b=1 c=1 cdc$deleted_m=true p=1", "seq 1 op 1 c=1 cdc$deleted_m=true m={2: 2} p=1", "seq 2 op 9 a=2 b=1 c=1 cdc$end_of_batch=true m={2: 2} p=1"},
			{"seq 0 op 1 p=1 s=5", "seq 1 op 9 cdc$end_of_batch=true p=1 s=5"},
			{
				"seq 0 op 0 p=1 s=5", "seq 1 op 0 a=2 b=1 c=1 m={2: 2} p=1", "seq 2 op 1 p=1 s=6", "seq 3 op 2 c=1 cdc$deleted_a=true p=1",
				"seq 4 op 9 p=1 s=6", "seq 5 op 9 b=1 c=1 cdc$end_of_batch=true m={2: 2} p=1",
			},
			{"seq 0 op 0 b=1 c=1 cdc$deleted_a=true m={2: 2} p=1", "seq 1 op 1 c=1 cdc$deleted_a=true p=1", "seq 2 op 9 b=1 c=1 cdc$end_of_batch=true m={2: 2} p=1"},
			{"seq 0 op 0 b=1 c=1 cdc$deleted_a=true m={2: 2} p=1", "seq 1 op 3 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 3 c=1 cdc$end_of_batch=true p=1"},
			{"seq 0 op 6 c=0 p=1", "seq 1 op 7 cdc$end_of_batch=true p=1"},
			{"seq 0 op 4 cdc$end_of_batch=true p=1"},
			{"seq 0 op 1 a=1 c=1 p=2", "seq 1 op 1 b=1 c=2 p=2", "seq 2 op 9 a=1 c=1 p=2", "seq 3 op 9 b=1 c=2 cdc$end_of_batch=true p=2"},
			{
				"seq 0 op 0 a=1 c=1 cdc$deleted_b=true cdc$deleted_m=true p=2", "seq 1 op 0 b=1 c=2 cdc$deleted_a=true cdc$deleted_m=true p=2",
				"seq 2 op 1 a=2 c=1 p=2", "seq 3 op 1 b=2 c=2 p=2", "seq 4 op 9 a=2 c=1 p=2", "seq 5 op 9 b=2 c=2 cdc$end_of_batch=true p=2",
			},
			{"seq 0 op 2 a=1 c=1 cdc$ttl=100 p=4", "seq 1 op 9 a=1 c=1 cdc$end_of_batch=true p=4"},
			{"seq 0 op 0 a=1 c=1 cdc$deleted_b=true cdc$deleted_m=true p=4", "seq 1 op 1 b=2 c=1 p=4", "seq 2 op 9 a=1 b=2 c=1 cdc$end_of_batch=true p=4"},
			{"seq 0 op 2 a=1 c=1 p=3", "seq 1 op 3 c=2 p=3", "seq 2 op 9 a=1 c=1 cdc$end_of_batch=true p=3"},
			{
				"seq 0 op 2 a=1 c=2 p=321", "seq 1 op 9 a=1 c=2 cdc$end_of_batch=true p=321", "--",
				"seq 0 op 2 a=1 c=1 p=321", "seq 1 op 9 a=1 c=1 cdc$end_of_batch=true p=321",
			},
			{
				"seq 0 op 1 a=1 c=1 p=322", "seq 1 op 9 a=1 c=1 cdc$end_of_batch=true p=322", "--",
				"seq 0 op 0 a=1 c=1 cdc$deleted_b=true cdc$deleted_m=true p=322", "seq 1 op 2 b=2 c=1 p=322", "seq 2 op 9 a=1 b=2 c=1 cdc$end_of_batch=true p=322",
			},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var steps []step
			for i, want := range tt.want {
				steps = append(steps, step{"write", imageWrites[i].pk, imageWrites[i].ops, want})
			}
			play(t, table(t, tt.cdc, imageColumns...), steps)
		})
	}
}

func TestAugment_ImagesWithoutClusteringKey(t *testing.T) {
	t.Parallel()
	play(t, table(t, catalog.CDC{Preimage: catalog.ImageOn, Postimage: true}, "k int key", "a int", "b int"), []step{
		{"insert", 1, `+ a=1 b=2`, []string{"seq 0 op 2 a=1 b=2 k=1", "seq 1 op 9 a=1 b=2 cdc$end_of_batch=true k=1"}},
		{"update", 1, `~ a=3`, []string{"seq 0 op 0 a=1 k=1", "seq 1 op 1 a=3 k=1", "seq 2 op 9 a=3 b=2 cdc$end_of_batch=true k=1"}},
		{"to null", 1, `~ a=null`, []string{"seq 0 op 0 a=3 k=1", "seq 1 op 1 cdc$deleted_a=true k=1", "seq 2 op 9 b=2 cdc$end_of_batch=true k=1"}},
		{"delete", 1, `!`, []string{"seq 0 op 4 cdc$end_of_batch=true k=1"}},
	})
}

func TestAugment_DeltaKeys(t *testing.T) {
	t.Parallel()
	play(t, table(t, catalog.CDC{DeltaKeys: true}, baseColumns...), []step{
		{"insert", 101, `+1 a=1 b="x"`, []string{"seq 0 op 2 cdc$end_of_batch=true ck=1 pk=101"}},
		{"both", 105, `s s="s"; +1 a=1`, []string{"seq 0 op 1 pk=105", "seq 1 op 2 cdc$end_of_batch=true ck=1 pk=105"}},
		{"range", 205, `[5 1)`, []string{"seq 0 op 5 ck=5 pk=205", "seq 1 op 8 cdc$end_of_batch=true ck=1 pk=205"}},
	})
	play(t, table(t, catalog.CDC{DeltaKeys: true, Preimage: catalog.ImageOn, Postimage: true}, baseColumns...), []step{
		{"insert", 101, `+1 a=1 b="x"`, []string{"seq 0 op 2 ck=1 pk=101", "seq 1 op 9 a=1 b='x' cdc$end_of_batch=true ck=1 pk=101"}},
		{"keys", 103, `+1`, []string{"seq 0 op 2 ck=1 pk=103", "seq 1 op 9 cdc$end_of_batch=true ck=1 pk=103"}},
		{"both", 105, `s s="s"; +1 a=1`, []string{
			"seq 0 op 1 pk=105", "seq 1 op 2 ck=1 pk=105", "seq 2 op 9 pk=105 s='s'", "seq 3 op 9 a=1 cdc$end_of_batch=true ck=1 pk=105",
		}},
		{"null", 107, `~1 a=null`, []string{"seq 0 op 1 ck=1 pk=107", "seq 1 op 9 cdc$end_of_batch=true ck=1 pk=107"}},
		{"again", 110, `+1`, []string{"seq 0 op 2 ck=1 pk=110", "seq 1 op 9 cdc$end_of_batch=true ck=1 pk=110"}},
		{"again, with a null", 110, `+1 b=null`, []string{
			"seq 0 op 0 cdc$deleted_b=true ck=1 pk=110", "seq 1 op 2 ck=1 pk=110", "seq 2 op 9 cdc$end_of_batch=true ck=1 pk=110",
		}},
		{"static to null", 202, `s s=null`, []string{"seq 0 op 1 pk=202", "seq 1 op 9 cdc$end_of_batch=true pk=202"}},
		{"row", 203, `-1`, []string{"seq 0 op 3 cdc$end_of_batch=true ck=1 pk=203"}},
	})
}

// The post-image after a TTL has split a replaced collection must not contain the
// previous elements.
func TestAugment_ImagesOfSplitCollections(t *testing.T) {
	t.Parallel()
	play(t, table(t, catalog.CDC{Preimage: catalog.ImageFull, Postimage: true}, "k int key", "c int clustering", "se set<int>", "l list<int>"), []step{
		{"before", 1, `+1 se=[1,2]`, []string{
			"seq 0 op 2 c=1 cdc$deleted_se=true k=1 se={1, 2}", "seq 1 op 9 c=1 cdc$end_of_batch=true k=1 se={1, 2}",
		}},
		{"replaced with TTL", 1, `~1 se=[3] /60`, []string{
			"seq 0 op 0 c=1 cdc$deleted_l=true k=1 se={1, 2}",
			"seq 1 op 1 c=1 cdc$deleted_se=true k=1", "seq 2 op 1 c=1 cdc$ttl=60 k=1 se={3}",
			"seq 3 op 9 c=1 cdc$end_of_batch=true k=1 se={3}",
		}},
		{"changed by elements", 1, `~1 se+=[5]; ~1 se-=[3]`, []string{
			"seq 0 op 0 c=1 cdc$deleted_l=true k=1 se={3}",
			"seq 1 op 1 c=1 cdc$deleted_elements_se={3} k=1 se={5}",
			"seq 2 op 9 c=1 cdc$end_of_batch=true k=1 se={5}",
		}},
	})
}

func TestManager_NeedsLock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cdc  catalog.CDC
		want bool
	}{
		{catalog.CDC{}, false},
		{catalog.CDC{DeltaKeys: true}, false},
		{catalog.CDC{Postimage: true}, true},
		{catalog.CDC{Preimage: catalog.ImageOn}, true},
	} {
		f := setup(t, table(t, tt.cdc, "k int key"))
		if got := f.manager.NeedsLock(f.base); got != tt.want {
			t.Errorf("NeedsLock(%+v) = %v, want %v", tt.cdc, got, tt.want)
		}
		f.base.CDC.Enabled = false
		f.schema = f.schema.Clone()
		if f.manager.NeedsLock(f.base) {
			t.Errorf("NeedsLock(%+v) without CDC", tt.cdc)
		}
	}
}
