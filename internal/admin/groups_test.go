package admin

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// Blocked events count for the dead letter that they wait behind, in groups and in causes, so that
// the cause with the most events is first; those behind an unblocked one wait for the next. One
// whose cause is gone is a cause itself.
func TestGroups_BlockedEventsBelongToTheirCause(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	write := func(aggregate string, seq int64, class string, status dlq.Status) *dlq.DeadLetter {
		l := testDeadLetter(aggregate, seq)
		l.ErrorClass, l.Status, l.ErrorText = class, status, "an error of class "+class
		return b.writeDeadLetter(t, l, at.Add(time.Duration(seq)*time.Second))
	}
	for i := range 4 {
		write(fmt.Sprint("large", i), 1, "record_too_large", dlq.Suspended)
	}
	write("topic", 1, "topic_not_allowed", dlq.Suspended)
	for seq := range int64(9) {
		write("topic", 2+seq, "behind", dlq.Blocked)
	}
	passed := write("two", 1, "record_too_large", dlq.Suspended)
	write("two", 2, "refused", dlq.Suspended)
	blocked := write("two", 3, "behind", dlq.Blocked)
	if err := b.store.Unblock(t.Context(), passed.EventID, dlq.Actor{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	write("subscription", 1, "max_receive", dlq.Suspended)
	orphan := testDeadLetter("orphan", 2)
	orphan.ErrorClass, orphan.Status = "behind", dlq.Blocked
	b.writeDeadLetter(t, orphan, at)
	var got struct {
		Groups   []groupBody `json:"groups"`
		LookedAt int         `json:"looked_at"`
		Sampled  bool        `json:"sampled"`
	}
	b.ask(t, access.Viewer, "GET", "/v1/dead-letters/groups", "").into(t, http.StatusOK, &got)
	var groups []string
	for _, g := range got.Groups {
		groups = append(groups, fmt.Sprintf("%s %d blocks %d", g.ErrorClass, g.Count, g.Blocks))
		if g.Sample == "" || g.First.IsZero() || g.Last.Before(g.First) {
			t.Errorf("group %+v", g)
		}
	}
	want := []string{"topic_not_allowed 1 blocks 9", "record_too_large 5 blocks 0", "refused 1 blocks 1", "behind 1 blocks 0", "max_receive 1 blocks 0"}
	if !slices.Equal(groups, want) || got.LookedAt != 19 || got.Sampled {
		t.Errorf("the groups of %d dead letters, sampled %t, are %q, want %q of 19", got.LookedAt, got.Sampled, groups, want)
	}
	var st StatsBody
	b.ask(t, access.Viewer, "GET", "/v1/dead-letters/stats", "").into(t, http.StatusOK, &st)
	var causes []string
	for _, c := range st.Causes {
		causes = append(causes, fmt.Sprintf("%s %d blocks %d", c.ErrorClass, c.Count, c.Blocks))
	}
	if !slices.Equal(causes, want) || st.OpenByClass["behind"] != 11 {
		t.Errorf("the causes are %q, want %q; by class %v", causes, want, st.OpenByClass)
	}
	// The page of a blocked one links what blocks it, which is not the unblocked one before.
	var one DeadLetterBody
	b.ask(t, access.Viewer, "GET", "/v1/dead-letters/"+blocked.EventID.String(), "").into(t, http.StatusOK, &one)
	var cause DeadLetterBody
	b.ask(t, access.Viewer, "GET", "/v1/dead-letters/"+one.BlockedBy, "").into(t, http.StatusOK, &cause)
	if cause.ErrorClass != "refused" || cause.BlockedBy != "" {
		t.Errorf("it is blocked by %+v, want the one that was refused", cause.Summary)
	}
}

// Counts of blocked events are older than counts of dead letters: they never exceed them.
func TestCauses_NeverExceedTheBlockedEvents(t *testing.T) {
	t.Parallel()
	got := newCauses(map[string]int64{"a": 1, "b": 2, "behind": 5}, map[string]int64{"a": 4, "b": 4, "gone": 9})
	if want := "[{a 1 4} {b 2 1}]"; fmt.Sprint(got) != want {
		t.Errorf("causesOf() = %v, want %s", got, want)
	}
	if got, want := fmt.Sprint(newCauses(map[string]int64{"a": 1, "behind": 5}, nil)), "[{behind 5 0} {a 1 0}]"; got != want {
		t.Errorf("causesOf() = %v without blocks, want %s", got, want)
	}
}
