package golden

import (
	"slices"
	"testing"
	"time"
)

// Of six batches of T9 two time out: one shows the row with a log soon, the other 54 s
// later, after a split.
func TestCase_Fates(t *testing.T) {
	t.Parallel()
	cases, err := Load("../testdata/golden-2026", "T9")
	if err != nil {
		t.Fatal(err)
	}
	got := map[int][]time.Duration{}
	for r, f := range cases[0].Fates() {
		if f.Answer.Code != 0x1100 {
			t.Errorf("step %d: %+v", r.Step, f.Answer)
		}
		for _, d := range f.Later {
			got[r.Step] = append(got[r.Step], d.Round(time.Second))
		}
	}
	if len(got) != 2 || !slices.Equal(got[12], []time.Duration{54 * time.Second}) || !slices.Equal(got[14], []time.Duration{5 * time.Second}) {
		t.Errorf("Fates() = %v, want step 12 after 54s, step 14 after 5s", got)
	}
}

// In 5.1 each of the two holders of the batchlog writes a log row of its own.
func TestCase_FatesOfReplays(t *testing.T) {
	t.Parallel()
	cases, err := Load("../testdata/golden", "batchlog")
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for _, c := range cases {
		for _, f := range c.Fates() {
			most = max(most, len(f.Later))
		}
	}
	if most < 2 {
		t.Errorf("a batch is applied %d times at most, want more than once", most)
	}
}

// F3 shows three generations: of one node, of two, and of one again.
func TestCase_Generations(t *testing.T) {
	t.Parallel()
	cases, err := Load("../testdata/golden-2026", "F3.vnodes")
	if err != nil {
		t.Fatal(err)
	}
	rings := cases[0].Generations()
	if len(rings) != 3 {
		t.Fatalf("%d generations, want 3", len(rings))
	}
	for i, want := range []int{4, 8, 4} {
		r := rings[i]
		if len(r.Tokens) != want || len(r.Streams) != want || !slices.IsSorted(r.Tokens) || r.GenerationID == [16]byte{} {
			t.Errorf("generation %d: %d tokens and %d streams, id %x; want %d", i, len(r.Tokens), len(r.Streams), r.GenerationID, want)
		}
		for j, s := range r.Streams {
			if len(s) != 1 || (be64(s[0][8:])>>4)&(1<<22-1) != int64(j) {
				t.Errorf("generation %d: stream %x is not that of vnode %d", i, s, j)
			}
		}
	}
}
