package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

type biographyInput struct {
	ID        string `path:"id" format:"uuid" doc:"The event's id, as the header ce_id has it"`
	Aggregate string `query:"aggregate" maxLength:"1000" doc:"Its aggregate's id, by which its outbox row is found; without one the row is found by a dead letter or by a record"`
}

// biographyBody is what is known of an event.
type biographyBody struct {
	EventID     string `json:"event_id" format:"uuid"`
	AggregateID string `json:"aggregate_id,omitempty"`
	EventType   string `json:"event_type,omitempty"`
	Sequence    int64  `json:"sequence,omitempty"`
	Letter      bool   `json:"letter" doc:"It has a dead letter"`
	EditOf      string `json:"edit_of,omitempty" format:"uuid" doc:"The event that somebody edited; this one is published in its place"`
	EditedTo    string `json:"edited_to,omitempty" format:"uuid" doc:"The event that is published in its place"`
	Steps       []step `json:"steps" doc:"What happened, oldest first"`
	// Gaps are what is not known, and why.
	Gaps []string `json:"gaps" doc:"What is not known, and why"`
}

// step is something that happened to an event, and who says so.
type step struct {
	Kind      string     `json:"kind" enum:"stored,captured,published,dead_letter,letter,edited"`
	What      string     `json:"what"`
	At        *time.Time `json:"at,omitempty"`
	Source    string     `json:"source" doc:"Where that was read"`
	Detail    string     `json:"detail,omitempty"`
	Topic     string     `json:"topic,omitempty"`
	Partition *int32     `json:"partition,omitempty"`
	Offset    *int64     `json:"offset,omitempty"`
}

type biographyOutput struct{ Body biographyBody }

func (s *Server) registerBiography() {
	huma.Register(s.api, s.describe(access.Viewer, huma.Operation{
		OperationID: "get-event", Method: http.MethodGet, Path: "/v1/events/{id}", Summary: "Tell what became of an event",
		Description: "From its outbox row, its record and its dead letter. The topics are read from about when the event was stored, up to a bound; what was not found or not looked at stands in gaps.",
	}, 404), s.getBiography)
}

// biographyTimeout bounds the search for an event.
const biographyTimeout = 20 * time.Second

func (s *Server) getBiography(ctx context.Context, in *biographyInput) (*biographyOutput, error) {
	id, err := eventID(ctx, "path.id", in.ID)
	if err != nil {
		return nil, err
	}
	work, cancel := context.WithTimeout(ctx, biographyTimeout)
	defer cancel()
	b := biographer{s: s, id: id, at: timeOf(id)}
	b.body = biographyBody{EventID: id.String(), AggregateID: in.Aggregate, Steps: []step{}, Gaps: []string{}}
	if err := s.heavily(work, func() error { return b.write(work) }); err != nil {
		return nil, s.toProblem(ctx, err, false)
	}
	if len(b.body.Steps) == 0 {
		p := newProblem(ctx, http.StatusNotFound, problemNotFound, "Nothing is known of this event.")
		p.Hint = strings.Join(b.body.Gaps, " ")
		return nil, p
	}
	slices.SortStableFunc(b.body.Steps, func(x, y step) int { return before(x.At, y.At) })
	return &biographyOutput{b.body}, nil
}

// before orders steps; those without a time come last.
func before(x, y *time.Time) int {
	switch {
	case x == nil && y == nil:
		return 0
	case x == nil:
		return 1
	case y == nil:
		return -1
	}
	return x.Compare(*y)
}

// timeOf is when an id was made, if it says so: UUIDv7 and v1 do.
func timeOf(id gocql.UUID) time.Time {
	switch id.Version() {
	case 1:
		return id.Time().UTC()
	case 7:
		var ms int64
		for _, b := range id[:6] {
			ms = ms<<8 | int64(b)
		}
		return time.UnixMilli(ms).UTC()
	}
	return time.Time{}
}

// biographer gathers what is known of one event.
type biographer struct {
	s    *Server
	id   gocql.UUID
	body biographyBody
	// at is about when the event was stored; zero if that is not known.
	at     time.Time
	letter *dlq.Letter
	out    bool // its record is known
}

func (b *biographer) tell(st step) { b.body.Steps = append(b.body.Steps, st) }
func (b *biographer) gap(format string, args ...any) {
	b.body.Gaps = append(b.body.Gaps, fmt.Sprintf(format, args...))
}

// write asks the dead letter first: it knows where the rest is.
func (b *biographer) write(ctx context.Context) error {
	if err := b.lookAtLetter(ctx); err != nil {
		return err
	}
	stored := false
	if b.body.AggregateID != "" {
		var err error
		if stored, err = b.lookAtRow(ctx); err != nil {
			return err
		}
	}
	if !b.out {
		b.lookAtTopics(ctx)
	}
	if !stored && b.body.AggregateID != "" && b.out {
		var err error
		if stored, err = b.lookAtRow(ctx); err != nil {
			return err
		}
	}
	switch {
	case stored:
	case b.body.AggregateID == "":
		b.gap("Its outbox row was not looked for, because the aggregate is not known: name it with ?aggregate=.")
	default:
		b.gap("Its outbox row is not there: it was never stored, its time to live is over, or it is in a table with columns of its own, which is not looked at.")
	}
	if b.out || b.letter != nil {
		b.gap("Whether the tail or the sweep found it first is not kept for single events, nor is the breaker's state but in dead letters, nor attempts of what was published without one.")
	}
	return nil
}

func (b *biographer) lookAtLetter(ctx context.Context) error {
	of := b.id
	l, err := b.s.letters.Read(ctx, of)
	if errors.Is(err, dlq.ErrNotFound) {
		if of, err = b.s.letters.OriginalOf(ctx, b.id); errors.Is(err, dlq.ErrNotFound) {
			return nil
		}
		if err == nil {
			b.body.EditOf = of.String()
			l, err = b.s.letters.Read(ctx, of)
		}
	}
	if errors.Is(err, dlq.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	b.letter = &l
	b.body.Letter = b.body.EditOf == ""
	b.body.AggregateID, b.body.EventType, b.body.Sequence = l.AggregateID, l.EventType, l.Sequence
	if l.WrittenAt > 0 {
		b.at = time.UnixMicro(l.WrittenAt).UTC()
	}
	history, err := b.s.letters.History(ctx, of)
	if err != nil {
		return err
	}
	source := "dead letter " + of.String()
	for _, c := range history {
		st := step{Kind: "letter", What: string(c.Action), At: when(c.At), Source: source}
		var parts []string
		for _, p := range []string{c.Why, c.Outcome} {
			if p != "" {
				parts = append(parts, p)
			}
		}
		if c.By != "" {
			parts = append(parts, "by "+c.By)
		}
		if c.From != c.To {
			parts = append(parts, "now "+string(c.To))
		}
		st.Detail = strings.Join(parts, "; ")
		switch c.Action {
		case dlq.ActionBury:
			st.Kind, st.What = "dead_letter", "became a dead letter"
			if state := l.Metadata["breaker"]; state != "" {
				st.Detail += "; the breaker was " + state + " when it died last"
			}
		case dlq.ActionEdit:
			st.Kind = "edited"
		}
		b.tell(st)
	}
	if l.EditedID != (gocql.UUID{}) && l.EditedID != b.id {
		b.body.EditedTo = l.EditedID.String()
		b.gap("What is published in its place has an id of its own: see edited_to.")
		b.out = true // there is no record with this id
		return nil
	}
	if o := l.Outcome; o.Topic != "" {
		b.out = true
		b.tell(step{
			Kind: "published", What: "published", At: when(l.ResolvedAt), Source: source, Topic: o.Topic, Partition: &o.Partition, Offset: &o.Offset,
			Detail: fmt.Sprintf("%s: %s, partition %d, offset %d; %d attempts in all", o.Kind, o.Topic, o.Partition, o.Offset, l.Attempts),
		})
	}
	return nil
}

// maxRows is how many rows of an aggregate are looked at.
const maxRows = 10_000

// lookAtRow looks for the event's row among those of its aggregate.
func (b *biographer) lookAtRow(ctx context.Context) (bool, error) {
	aggregate, err := gocql.ParseUUID(b.body.AggregateID)
	if err != nil {
		b.gap("Its outbox row was not looked for: the aggregate's id is no UUID, so it is in a table with columns of its own.")
		return false, nil
	}
	id := b.id
	if b.body.EditOf != "" {
		id = b.letter.EventID // the row is that of the original
	}
	table := b.s.cfg.Keyspace + "." + outbox.DefaultTableName
	stmt := "SELECT event_id, seq, event_type, aggregate_type, created_at, WRITETIME(event_type), TTL(event_type) FROM " + table + " WHERE aggregate_id = ?"
	args := []any{aggregate}
	if b.body.Sequence > 0 {
		stmt += " AND seq = ?"
		args = append(args, b.body.Sequence)
	}
	ctx, cancel := context.WithTimeout(ctx, b.s.cfg.Timeout)
	defer cancel()
	iter := b.s.cfg.Session.Query(stmt+" LIMIT ?", append(args, maxRows)...).WithContext(ctx).Consistency(b.s.cfg.Consistency).Idempotent(true).Iter()
	var found gocql.UUID
	var seq, written int64
	var eventType, aggregateType string
	var created time.Time
	var ttl int
	rows, ok := 0, false
	for iter.Scan(&found, &seq, &eventType, &aggregateType, &created, &written, &ttl) {
		rows++
		if found != id {
			continue
		}
		ok = true
		b.body.EventType, b.body.Sequence = eventType, seq
		b.at = time.UnixMicro(written).UTC()
		detail := fmt.Sprintf("%s, number %d of %s %s; it happened at %s", eventType, seq, aggregateType, aggregate, created.UTC().Format(time.RFC3339Nano))
		if ttl > 0 {
			detail += fmt.Sprintf("; the row lives until %s", b.s.cfg.Now().Add(time.Duration(ttl)*time.Second).UTC().Format(time.RFC3339))
		}
		b.tell(step{Kind: "stored", What: "stored", At: when(b.at), Source: "outbox row in " + table, Detail: detail})
		break
	}
	if err := iter.Close(); err != nil {
		return false, fmt.Errorf("look for event %s in %s: %w", id, table, err)
	}
	if !ok && rows == maxRows {
		b.gap("Only the first %d rows of its aggregate were looked at.", maxRows)
	}
	return ok, nil
}
