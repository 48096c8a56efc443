package verify

import (
	"math"
	"slices"
	"testing"

	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// A scan passes on the rows of an aggregate in sequence, whatever the clustering order of
// the table.
func TestScan_ClusteringOrderOfTheTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, stmt := range []string{
		"DROP TABLE outbox_messages",
		"CREATE TABLE outbox_messages (aggregate_id text, seq bigint, event_id uuid, aggregate_type text, event_type text, payload blob," +
			" content_type text, headers frozen<map<text, text>>, created_at timestamp, deliver_at timestamp, PRIMARY KEY (aggregate_id, seq))" +
			" WITH CLUSTERING ORDER BY (seq DESC)",
	} {
		if err := b.session.Query(stmt).Exec(); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
	for a := 1; a <= 3; a++ {
		b.write(event(a, 1), event(a, 2), event(a, 3), event(a, 4))
	}
	v := b.verification()
	if _, err := v.head(t.Context()); err != nil {
		t.Fatal(err)
	}
	seqs := make(map[outbox.ID][]int64)
	if err := v.Scan.walk(t.Context(), math.MinInt64, math.MaxInt64, rate.NewLimiter(rate.Inf, pageRows), func(r *Row, _ *Unreadable) error {
		seqs[r.Aggregate] = append(seqs[r.Aggregate], r.Seq)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(seqs) != 3 {
		t.Errorf("rows of %d aggregates, want 3", len(seqs))
	}
	for a, got := range seqs {
		if !slices.Equal(got, []int64{1, 2, 3, 4}) {
			t.Errorf("aggregate %s: seqs %v, want 1 to 4", a, got)
		}
	}
}

// A partition whose events have expired and whose static columns remain has a row without a
// number. It is no event, and no problem.
func TestScan_StateWithoutEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := b.session.Query("ALTER TABLE outbox_messages ADD balance bigint static").Exec(); err != nil {
		t.Fatal(err)
	}
	b.write(event(1, 1))
	for a := 1; a <= 2; a++ {
		if err := b.session.Query("UPDATE outbox_messages SET balance = 7 WHERE aggregate_id = ?", event(a, 1).AggregateID).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	v := b.verification()
	if _, err := v.head(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows := 0
	if err := v.Scan.walk(t.Context(), math.MinInt64, math.MaxInt64, rate.NewLimiter(rate.Inf, pageRows), func(r *Row, bad *Unreadable) error {
		if rows++; bad != nil || r.Aggregate != event(1, 1).AggregateID || r.Seq != 1 {
			t.Errorf("row %+v, %+v; want event 1 alone", r, bad)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if rows != 1 {
		t.Errorf("%d rows, want 1", rows)
	}
}
