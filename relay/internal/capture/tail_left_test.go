package capture

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
)

// Rows that follow one that is left are left too, until the sweep reader has handed on the last of
// them; rows before it, and rows of other aggregates, are not.
func TestTailLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, nil, byTime)
		defer b.stop()
		left, aggregate, now := &b.tail.left, unnumberedEvent(1, 1).AggregateID.UUID(), time.Now()
		follows := func(after time.Duration) bool {
			return left.follows(aggregate, b.gen.Start, memStream(1), now.Add(after).UnixMicro())
		}
		sweep := func(upTo time.Duration) {
			for _, p := range b.streams.All() {
				p.Idle(gocql.MinTimeUUID(now.Add(upTo)))
			}
		}
		left.add(aggregate, b.gen.Start, memStream(1), now.UnixMicro())
		if left.follows(unnumberedEvent(2, 1).AggregateID.UUID(), b.gen.Start, memStream(1), now.UnixMicro()) {
			t.Error("a row of another aggregate is left")
		}
		if follows(-time.Microsecond) {
			t.Error("a row before the one that is left is left")
		}
		if !follows(0) || !follows(10*time.Second) || !follows(5*time.Second) {
			t.Error("a row after the one that is left is not left")
		}
		sweep(8 * time.Second) // of two left rows the last is still to come
		if !follows(9 * time.Second) {
			t.Error("a row is not left although one of its aggregate is")
		}
		sweep(11 * time.Second)
		if follows(11 * time.Second) {
			t.Error("a row is left although the sweep reader has handed on all before it")
		}
		left.add(aggregate, b.gen.Start.Add(-time.Minute), memStream(1), now.UnixMicro())
		if follows(time.Second) {
			t.Error("a row is left although the sweep reader has finished the generation of the one before it")
		}
		left.add(aggregate, b.gen.Start.Add(time.Minute), memStream(1), now.UnixMicro())
		if !follows(time.Second) {
			t.Error("a row is not left although the sweep reader has not begun the generation of the one before it")
		}
	})
}
