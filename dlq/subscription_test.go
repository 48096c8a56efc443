package dlq

import (
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"
)

// The dead letter of another record of a subscription is never taken for the one that is to be
// written; a repetition is.
func TestWrite_OtherRecordOfASubscription(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := testDeadLetter("a", 1)
	l.Table, l.Status, l.Metadata = "subscription.mail", Suspended, map[string]string{"topic": "a", "offset": "1", "host": "i-1"}
	b.mustWrite(t, l)
	again := *l
	again.Metadata = map[string]string{"topic": "a", "offset": "1", "host": "i-2"}
	again.Attempts, again.ErrorText, again.LastFailedAt = 9, "other", l.LastFailedAt.Add(time.Hour)
	if st, err := b.Write(t.Context(), &again); err != nil || st != Suspended {
		t.Errorf("Write() again = %s, %v", st, err)
	}
	for name, change := range map[string]func(*DeadLetter){
		"another place":   func(l *DeadLetter) { l.Metadata = map[string]string{"topic": "a", "offset": "2", "host": "i-1"} },
		"another payload": func(l *DeadLetter) { l.Payload = []byte("x") },
		"another time":    func(l *DeadLetter) { l.WrittenAt++ },
		"another key":     func(l *DeadLetter) { l.AggregateID = "b" },
	} {
		other := *l
		change(&other)
		if _, err := b.Write(t.Context(), &other); !errors.Is(err, ErrOtherRecord) {
			t.Errorf("%s: Write() = %v, want ErrOtherRecord", name, err)
		}
	}
	if got := b.mustRead(t, l.EventID); got.Version != 1 || !SameRecord(&got, l) {
		t.Errorf("the stored dead letter has changed: %+v", got)
	}
}

// RequestedTables lists the tables that have requests.
func TestRequestedTables(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, table := range []string{testTable, "subscription.mail", "subscription.mail"} {
		l := testDeadLetter("a", int64(i+1))
		l.EventID, l.Table, l.Status = gocql.MustRandomUUID(), table, Suspended
		b.mustWrite(t, l)
		if err := b.Replay(t.Context(), l.EventID, Actor{Name: "ada", Reason: "fixed"}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := b.RequestedTables(t.Context()); err != nil || len(got) != 2 {
		t.Errorf("RequestedTables() = %v, %v; want two", got, err)
	}
}
