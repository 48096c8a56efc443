package chains

import (
	"slices"
	"testing"

	"github.com/gocql/gocql"
)

// Dead letters of an aggregate are replayed in the order of sequence numbers, not of writes.
func TestSet_AChainIsInTheOrderOfNumbers(t *testing.T) {
	t.Parallel()
	d := New(nil)
	key := gocql.UUID{1}
	for _, seq := range []int64{3, 1, 5, 2, 4} {
		d.Add(key, true, Ref{ID: gocql.UUID{2, byte(seq)}, Seq: seq, At: AtOnce}, false)
	}
	var got []int64
	for _, ref := range d.chains[key].Letters {
		got = append(got, ref.Seq)
	}
	if !slices.Equal(got, []int64{1, 2, 3, 4, 5}) || d.due[0].Head().Seq != 1 {
		t.Errorf("the chain is %v with %d due first, want 1 to 5", got, d.due[0].Head().Seq)
	}
}
