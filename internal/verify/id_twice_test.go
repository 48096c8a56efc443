package verify

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Two events of different aggregates have one id, and one of them is published: the other is
// reported, by a verification and by the verifier.
func TestVerify_IDOfTwoAggregates(t *testing.T) {
	t.Parallel()
	for published := range 2 {
		t.Run(fmt.Sprint("published ", published), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			first, second := event(1, 1), event(3, 1)
			second.ID = first.ID
			b.write(first)
			b.write(second, event(5, 1))
			in, lost := first, second
			if published == 1 {
				in, lost = second, first
			}
			b.publish(0, in, event(5, 1))

			got, found := b.run(b.verification())
			if got.OK() || got.Unreadable != 1 || got.Doubles+got.Missing+got.Unknown != 0 {
				t.Errorf("a verification counts %+v: %v, want one unreadable row", got, found)
			}
			if len(found) != 1 {
				t.Errorf("findings = %v, want one of the rows", found)
			}
			var log strings.Builder
			v := b.verifier(&log)
			for range 2 {
				b.check(v, map[string]int{"published": 2, "missing": 1}, lost)
			}
			if !strings.Contains(log.String(), "aggregate_id="+lost.AggregateID.String()) {
				t.Errorf("the log does not name the aggregate of the missing event:\n%s", log.String())
			}
		})
	}
}

// An event is missing whose id is that of another aggregate's dead letter, also where the row of the
// other one has expired.
func TestVerify_IDOfADeadLetterOfAnotherAggregate(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		b := setup(t)
		e := event(3, 1)
		b.write(e)
		letter := DeadLetter{Event: e.ID.UUID(), State: DeadLetterClosed}
		if known {
			letter.Aggregate = event(1, 1).AggregateID
		}
		letters := deadLettersFunc(func(_ []gocql.UUID, each func(DeadLetter)) error { each(letter); return nil })
		v := b.verification()
		v.DeadLetters = letters
		if got, found := b.run(v); known != (got.Missing == 1) || known == (got.Closed == 1) {
			t.Errorf("aggregate known %t: a verification counts %+v: %v", known, got, found)
		}
		verifier := b.verifier(new(strings.Builder), func(c *VerifierConfig) { c.Tables[0].DeadLetters = letters })
		if known {
			b.check(verifier, map[string]int{"missing": 1}, e)
		} else {
			b.check(verifier, map[string]int{"dead_letter": 1})
		}
	}
}

// One id of two events of an aggregate, of which either is published: a verification reports a row,
// and the verifier the other event.
func TestVerify_IDOfTwoEventsOfAnAggregate(t *testing.T) {
	t.Parallel()
	for published := range 2 {
		b := setup(t)
		two := []outbox.Event{event(1, 1), event(1, 2)}
		two[1].ID = two[0].ID
		b.write(two...)
		b.publish(0, two[published])
		got, found := b.run(b.verification())
		if got.OK() || got.Unreadable != 1 || len(found) != 1 || !strings.HasPrefix(found[0], "unreadable") {
			t.Errorf("number %d is published: a verification counts %+v: %v, want one unreadable row", published+1, got, found)
		}
		b.check(b.verifier(new(strings.Builder)), map[string]int{"published": 1, "missing": 1}, two[1-published])
	}
}

// One id of events of two aggregates, each published by its shard: a verification reports the second
// row, and the second record.
func TestVerify_IDInTwoShards(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := event(1, 1), event(3, 1)
	second.ID = first.ID
	b.write(first)
	b.write(second)
	b.publish(0, first)
	b.publish(1, second)
	if got, found := b.run(b.verification()); got.OK() || got.Unreadable != 1 || got.Doubles != 1 || len(found) != 2 {
		t.Errorf("a verification counts %+v: %v, want an unreadable row and a double", got, found)
	}
}
