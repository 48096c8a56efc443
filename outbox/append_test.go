package outbox

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
)

// What can lose an event is refused, with the fix, and changes nothing.
func TestAppend_Refuses(t *testing.T) {
	t.Parallel()
	for _, kind := range []gocql.BatchType{gocql.UnloggedBatch, gocql.CounterBatch} {
		b := &gocql.Batch{Type: kind}
		var wrong *BatchTypeError
		if err := Append(b, testEvent()); !errors.As(err, &wrong) || wrong.Type != kind || !strings.Contains(err.Error(), "use ") || b.Size() != 0 {
			t.Errorf("batch type %d: %v, and %d statements; want a *BatchTypeError with the fix and none", kind, err, b.Size())
		}
	}
	if err := Append(nil, testEvent()); err == nil || !strings.Contains(err.Error(), "NewBatch") {
		t.Errorf("nil batch: %v", err)
	}
	if err := (Table{}).Append(&gocql.Batch{}, testEvent()); err == nil || !strings.Contains(err.Error(), "NewTable") {
		t.Errorf("zero table: %v", err)
	}
	if _, _, err := (Table{}).Insert(testEvent()); err == nil {
		t.Error("Insert of a zero table succeeds")
	}
	if _, err := NewAppender(t.Context(), nil, DefaultTable, AppenderConfig{}); err == nil || !strings.Contains(err.Error(), "session") {
		t.Errorf("nil session: %v", err)
	}
}

// A TTL that the database cannot keep is refused by everything that writes with it.
func TestTable_WithTTLRefusesWhatCQLCannotKeep(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, -time.Second, 100 * 365 * 24 * time.Hour} {
		table, e := DefaultTable.WithTTL(ttl), testEvent()
		_, _, insert := table.Insert(e)
		_, _, conditional := table.InsertIfNotExists(e)
		_, appender := NewAppender(t.Context(), new(gocql.Session), table, AppenderConfig{})
		for name, err := range map[string]error{
			"Append": table.Append(gocql.NewBatch(gocql.LoggedBatch), e), "Insert": insert, "InsertIfNotExists": conditional, "NewAppender": appender, "Validate": table.Validate(&e),
		} {
			if err == nil || !strings.Contains(err.Error(), ttl.String()) || !strings.Contains(err.Error(), "whole seconds to WithTTL") {
				t.Errorf("%s with a TTL of %s: %v, want an error with the value and the fix", name, ttl, err)
			}
		}
		if _, _, err := table.WithTTL(time.Hour).Insert(e); err != nil {
			t.Errorf("another TTL after %s: %v", ttl, err)
		}
	}
}

// The relay reads at LOCAL_QUORUM: a level below it is refused, before the database is asked.
func TestNewAppender_RefusesWeakConsistency(t *testing.T) {
	t.Parallel()
	for _, level := range []gocql.Consistency{gocql.One, gocql.Two, gocql.Three, gocql.LocalOne, gocql.Consistency(gocql.Serial), 99} {
		_, err := NewAppender(t.Context(), new(gocql.Session), DefaultTable, AppenderConfig{Consistency: level})
		if err == nil || !strings.Contains(err.Error(), "AppenderConfig.Consistency "+consistencyName(level)) || !strings.Contains(err.Error(), "use LOCAL_QUORUM") {
			t.Errorf("level %s: %v, want an error with the field and the fix", consistencyName(level), err)
		}
	}
}

// What a call needs of an event is checked before the database is asked; other fields may be empty.
func TestAppender_ChecksWhatTheCallNeeds(t *testing.T) {
	t.Parallel()
	a := &Appender{session: new(gocql.Session), table: DefaultTable}
	whole := testEvent()
	for _, tt := range []struct {
		field  string
		change func(*Event)
		since  bool // Since needs it, too
	}{
		{"ID", func(e *Event) { e.ID = ID{} }, false},
		{"AggregateID", func(e *Event) { e.AggregateID = ID{} }, true},
		{"AggregateID", func(e *Event) { e.AggregateID = ID{uuid: testID.uuid, text: strings.ToUpper(testID.String())} }, true},
		{"Sequence", func(e *Event) { e.Sequence = 0 }, false},
		{"Sequence", func(e *Event) { e.Sequence = -1 }, false},
	} {
		e := Event{ID: whole.ID, AggregateID: whole.AggregateID, Sequence: whole.Sequence}
		tt.change(&e)
		_, stored, find := a.Find(t.Context(), e, AppendOptions{})
		calls := map[string]error{"Find": find, "Settle": a.Settle(t.Context(), e)}
		if tt.since {
			_, calls["Since"] = a.Since(t.Context(), &e, 1)
		}
		for name, err := range calls {
			bad, ok := errors.AsType[*InvalidEventError](err)
			if !ok || stored || len(bad.Fields) != 1 || bad.Fields[0].Field != tt.field || bad.Fields[0].Fix == "" {
				t.Errorf("%s() without %s = %v, want *InvalidEventError of it", name, tt.field, err)
			}
		}
	}
	_, err := a.Since(t.Context(), nil, 1)
	if _, ok := errors.AsType[*InvalidEventError](err); !ok {
		t.Errorf("Since(nil) = %v, want *InvalidEventError", err)
	}
}

// An Attempt that hides the outcome of a statement is an error of every attempt.
func TestAppender_AttemptThatHidesItsOutcome(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	statement := func(context.Context) error { return failed }
	for name, tt := range map[string]struct {
		hook func(context.Context, func(context.Context) error) error
		want error
		sent bool
	}{
		"nothing is called":       {func(context.Context, func(context.Context) error) error { return nil }, errNotCalled, false},
		"the error is not passed": {func(ctx context.Context, statement func(context.Context) error) error { _ = statement(ctx); return nil }, failed, true},
	} {
		a := &Appender{cfg: AppenderConfig{AttemptTimeout: time.Second, Budget: time.Minute, Attempt: tt.hook}}
		if err := a.attempt(t.Context(), statement); !errors.Is(err, tt.want) || notSent(err) == tt.sent {
			t.Errorf("%s: %v, not sent %t; want %v", name, err, notSent(err), tt.want)
		}
	}
	// It ends by itself, and not by its budget.
	a := &Appender{cfg: AppenderConfig{AttemptTimeout: time.Hour, Budget: time.Hour, Attempt: func(context.Context, func(context.Context) error) error { return nil }}}
	if err := a.repeat(t.Context(), statement); !errors.Is(err, errNotCalled) {
		t.Errorf("repeat() = %v, want %v", err, errNotCalled)
	}
}

// The missing event is rebuilt under the id that the batch gave it.
func TestGapError_NamesTheID(t *testing.T) {
	t.Parallel()
	if text := (&GapError{Event: testEvent()}).Error(); !strings.Contains(text, "with the ID that their batch gave it") {
		t.Errorf("Error() = %q", text)
	}
}

// Insert has the set columns only, in types of no driver.
func TestTable_Insert(t *testing.T) {
	t.Parallel()
	e := testEvent()
	e.Headers = nil
	stmt, args, err := DefaultTable.WithTTL(time.Hour).Insert(e)
	const want = "INSERT INTO outbox_messages (aggregate_id, seq, event_id, aggregate_type, event_type, payload, content_type, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TTL 3600"
	if err != nil || stmt != want {
		t.Errorf("Insert() = %q, %v; want %q", stmt, err, want)
	}
	for i, v := range []any{testAggregate.String(), int64(7), [16]byte(testID.uuid), "order", "OrderCreated"} {
		if args[i] != v {
			t.Errorf("argument %d is %v, want %v", i, args[i], v)
		}
	}
	if at, ok := args[7].(time.Time); !ok || !at.Equal(e.CreatedAt) {
		t.Errorf("created_at is %v, want a time", args[7])
	}
	if _, _, err := DefaultTable.Insert(Event{}); err == nil {
		t.Error("an invalid event has a statement")
	}
}

// A table whose key continues behind the number has two rows for two events of one number, so that
// the condition of each would hold.
func TestTable_ConditionsNeedAKeyThatEndsWithTheNumber(t *testing.T) {
	t.Parallel()
	table, err := Mapping{AggregateType: "order"}.Table("", "events", columns(
		"aggregate_id text is "+KindPartitionKey, "seq bigint is "+KindClustering, "event_id uuid is "+KindClustering,
		"event_type text", "payload blob", "headers map<text, text>",
	))
	if err != nil {
		t.Fatal(err)
	}
	_, _, conditional := table.InsertIfNotExists(testEvent())
	_, appender := NewAppender(t.Context(), new(gocql.Session), table, AppenderConfig{RowTTL: time.Hour})
	for name, err := range map[string]error{"InsertIfNotExists": conditional, "NewAppender": appender} {
		var mapping *MappingError
		if !errors.As(err, &mapping) || mapping.Column != "event_id" || mapping.Fix == "" {
			t.Errorf("%s: %v, want *MappingError of event_id", name, err)
		}
	}
	if _, _, err := table.Insert(testEvent()); err != nil {
		t.Errorf("Insert: %v", err)
	}
}

// plan and judge decide without the database which rows are read, and their meaning.
func TestAppender_PlanAndJudge(t *testing.T) {
	t.Parallel()
	a := Appender{table: DefaultTable, cfg: AppenderConfig{RowTTL: 7 * 24 * time.Hour}}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	stored := func(numbers ...int64) (list []Event) {
		for _, n := range numbers {
			e := testEvent()
			e.ID.uuid[0], e.Sequence = byte(n), n
			list = append(list, e)
		}
		return list
	}
	mine := func(n int64, id byte) Event {
		e := testEvent()
		e.Sequence, e.ID.uuid[0] = n, id
		return e
	}
	for _, tt := range []struct {
		name  string
		e     Event
		o     AppendOptions
		found []Event
		read  bool
		from  int64
		want  verdict
		at    int
	}{
		{"free", mine(5, 99), AppendOptions{}, nil, true, 5, verdictFree, 0},
		{"young rows need no read", mine(5, 99), AppendOptions{VersionWrittenAt: now.Add(-time.Hour)}, nil, false, 5, verdictFree, 0},
		{"old rows do", mine(5, 99), AppendOptions{VersionWrittenAt: now.Add(-4 * 24 * time.Hour)}, nil, true, 5, verdictFree, 0},
		{"rows of the future do", mine(5, 99), AppendOptions{VersionWrittenAt: now.Add(4 * 24 * time.Hour)}, nil, true, 5, verdictFree, 0},
		{"event 1 is missing", mine(2, 99), AppendOptions{VersionWrittenAt: now}, nil, true, 1, verdictGap, 0},
		{"event 1 has expired", mine(2, 99), AppendOptions{}, nil, true, 2, verdictFree, 0},
		{"event 1 exists", mine(2, 99), AppendOptions{VersionWrittenAt: now}, stored(1), true, 1, verdictFree, 0},
		{"taken", mine(5, 99), AppendOptions{}, stored(5, 6), true, 5, verdictConflict, 0},
		{"a later number is taken", mine(5, 99), AppendOptions{}, stored(7), true, 5, verdictConflict, 0},
		{"repeated", mine(5, 6), AppendOptions{}, stored(5, 6), true, 5, verdictStored, 1},
		{"repeated from an earlier number", mine(5, 3), AppendOptions{SearchFrom: 3}, stored(3, 4), true, 3, verdictStored, 0},
		{"earlier events of others", mine(5, 99), AppendOptions{SearchFrom: 3}, stored(3, 4), true, 3, verdictFree, 0},
		{"the event before has this id", mine(2, 1), AppendOptions{VersionWrittenAt: now}, stored(1), true, 1, verdictFree, 0},
	} {
		p := a.plan(&tt.e, tt.o, now)
		if p.read != tt.read || p.from != tt.from {
			t.Errorf("%s: read %t from %d, want %t from %d", tt.name, p.read, p.from, tt.read, tt.from)
		}
		if v, at := p.judge(tt.found, &tt.e); v != tt.want || at != tt.at {
			t.Errorf("%s: verdict %d at %d, want %d at %d", tt.name, v, at, tt.want, tt.at)
		}
	}
}

// An event that is due later than the relay keeps one is refused by everything that stores a new
// one, and not by what stores one again.
func TestAppend_RefusesAFarDelivery(t *testing.T) {
	t.Parallel()
	for after, refused := range map[time.Duration]bool{-time.Hour: false, maxWriteDelay - time.Second: false, maxWriteDelay + time.Second: true, MaxDelay + time.Minute: true, 24 * time.Hour: true} {
		e := testEvent()
		e.DeliverAt = time.Now().Add(after)
		_, _, insert := DefaultTable.Insert(e)
		_, _, conditional := DefaultTable.InsertIfNotExists(e)
		_, stored := DefaultTable.arguments(e, time.Time{})
		for name, err := range map[string]error{"Append": Append(gocql.NewBatch(gocql.LoggedBatch), e), "Insert": insert, "InsertIfNotExists": conditional} {
			bad, ok := errors.AsType[*InvalidEventError](err)
			if ok != refused || ok && (len(bad.Fields) != 1 || bad.Fields[0].Field != "DeliverAt" || !strings.Contains(err.Error(), "POST /v1/messages")) {
				t.Errorf("%s() of an event that is due after %s = %v, want refused %t", name, after, err, refused)
			}
		}
		if stored != nil || e.Validate() != nil {
			t.Errorf("a stored event that is due after %s is refused: %v, %v", after, stored, e.Validate())
		}
		written := time.Now()
		if bad, ok := errors.AsType[*rowError](DefaultTable.checkDelay(&e, written)); ok != (after > MaxDelay) || ok && bad.Column != "deliver_at" {
			t.Errorf("CheckDelay() of an event that is due after %s = %v", after, bad)
		}
		if err := DefaultTable.checkDelay(&e, e.DeliverAt.Add(-MaxDelay)); err != nil {
			t.Errorf("CheckDelay() at the limit = %v", err)
		}
	}
}
