package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

type biographyInput struct {
	ID        string `path:"id" minLength:"1" maxLength:"1000" doc:"Event id as in the header ce_id, or its UUID as in dead letters"`
	Aggregate string `query:"aggregate_id" maxLength:"1000" doc:"Aggregate id, which finds the outbox row; without it, the row is found through a dead letter or a record"`
}

// BiographyBody is the known history of an event.
type BiographyBody struct {
	EventID      string          `json:"event_id" doc:"As in the request"`
	AggregateID  string          `json:"aggregate_id,omitempty"`
	EventType    string          `json:"event_type,omitempty"`
	Sequence     int64           `json:"sequence,omitempty"`
	Captured     string          `json:"captured,omitempty" enum:"tail,sweep,key,backfill" doc:"The reader that found it first; key is a lookup in the outbox table"`
	Attempts     int             `json:"attempts,omitempty" doc:"Known attempts of the relay to publish it; retries of the Kafka client are not counted"`
	Breaker      string          `json:"breaker,omitempty" enum:"closed,half-open,open" doc:"State of the breaker when it was published; for a dead letter without a record, at the last failure"`
	DeadLetterID string          `json:"dead_letter_id,omitempty" format:"uuid" doc:"Id of its dead letter, always a UUID"`
	DeadLetter   bool            `json:"dead_letter" doc:"It has a dead letter"`
	EditOf       string          `json:"edit_of,omitempty" format:"uuid" doc:"The original event; this one is published in its place"`
	EditedTo     string          `json:"edited_to,omitempty" format:"uuid" doc:"The event that is published in its place"`
	Steps        []BiographyStep `json:"steps" doc:"Its history, oldest first"`
	// Subscriptions is empty until the event is in its topic.
	Subscriptions []subscriptions.Progress `json:"subscriptions" nullable:"false" doc:"Its state in each subscription of its topic, by name"`
	// Gaps are the unknown facts with their reasons.
	Gaps []string `json:"gaps" doc:"Unknown facts with their reasons"`
}

// BiographyStep is one change of an event, with the source of the information.
type BiographyStep struct {
	Kind      string     `json:"kind" enum:"stored,captured,published,dead_letter,dead_letter_changed,edited"`
	What      string     `json:"what"`
	At        *time.Time `json:"at,omitempty"`
	Source    string     `json:"source" doc:"Source of the information"`
	Detail    string     `json:"detail,omitempty"`
	Topic     string     `json:"topic,omitempty"`
	Partition *int32     `json:"partition,omitempty"`
	Offset    *int64     `json:"offset,omitempty"`
}

type biographyOutput struct{ Body BiographyBody }

// Kafka creates clients of the broker with the topics.
type Kafka interface {
	// Client returns a client with further options. The caller closes it.
	Client(more ...kgo.Opt) (*kgo.Client, error)
}

// biographySources are the sources of the biography of an event.
type biographySources struct {
	deadLetters *dlq.Store
	session     *gocql.Session
	keyspace    string
	timeout     time.Duration
	relay       string
	tables      []Table
	kafka       Kafka
	// subscriptions is nil if biographies contain none.
	subscriptions Subscriptions
	// scheduled is nil if there are no scheduled messages.
	scheduled func(ctx context.Context, of string, limit int) ([]ScheduledMessage, bool, error)
}

// biographyEndpoints show the biography of one event.
type biographyEndpoints struct {
	*operations
	sources *biographySources
}

func newBiographyEndpoints(ops *operations, cfg *Config) *biographyEndpoints {
	return &biographyEndpoints{ops, &biographySources{
		deadLetters: cfg.DeadLetters, session: cfg.Session, keyspace: cfg.Keyspace, timeout: cfg.Timeout,
		relay: cfg.Relay, tables: cfg.Tables, kafka: cfg.Kafka, subscriptions: cfg.Subscriptions, scheduled: cfg.Scheduled,
	}}
}

func (ep *biographyEndpoints) register() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "get-event", Method: http.MethodGet, Path: "/v1/events/{id}", Summary: "Get the history of an event",
		Description: "Built from its outbox row, its record and its dead letter. The topics are read from about the time when the event was stored, up to a limit; gaps lists what was not found or not read.",
	}, 404), ep.get)
	ep.registerAggregate()
}

// biographyTimeout bounds the search for an event.
const biographyTimeout = 20 * time.Second

func (ep *biographyEndpoints) get(ctx context.Context, in *biographyInput) (*biographyOutput, error) {
	id := rows.IDOf(in.ID) // a table's ids may be text or numbers
	work, cancel := context.WithTimeout(ctx, biographyTimeout)
	defer cancel()
	b := biographer{biographySources: ep.sources, id: id, text: in.ID, at: idTime(id)}
	b.body = BiographyBody{EventID: in.ID, AggregateID: in.Aggregate, Steps: []BiographyStep{}, Subscriptions: []subscriptions.Progress{}, Gaps: []string{}}
	if err := ep.heavily(work, func() error { return b.write(work) }); err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	if len(b.body.Steps) == 0 {
		p := newProblem(ctx, httpapi.TypeNotFound, "This event is unknown.")
		if b.unread {
			p = newProblem(ctx, httpapi.TypeUnavailable, "The event is no dead letter, and the topics, by which its row is found, cannot be read; retry later.")
		}
		if u, err := gocql.ParseUUID(in.ID); err == nil && u.String() != in.ID {
			b.gap("The published form of this UUID is %s.", u)
		}
		p.Hint = strings.Join(b.body.Gaps, " ")
		return nil, p
	}
	b.order()
	return &biographyOutput{b.body}, nil
}

// order sorts the steps by time. The time of capture is not recorded: it is after the
// event was stored and before all other steps.
func (b *biographer) order() {
	steps := b.body.Steps
	slices.SortStableFunc(steps, func(x, y BiographyStep) int {
		// An event is stored first, whatever the clocks and their precision.
		return cmp.Or(stepOrder(x.Kind)-stepOrder(y.Kind), before(x.At, y.At), publishedLast(x.Kind)-publishedLast(y.Kind))
	})
	if b.captured == nil {
		return
	}
	at := slices.IndexFunc(steps, func(s BiographyStep) bool { return s.Kind != "stored" })
	if at < 0 {
		at = len(steps)
	}
	b.body.Steps = slices.Insert(steps, at, *b.captured)
}

// stepOrder sorts the step stored before all others.
func stepOrder(kind string) int {
	if kind == "stored" {
		return 0
	}
	return 1
}

// publishedLast sorts published after other steps of the same time.
func publishedLast(kind string) int {
	if kind == "published" {
		return 1
	}
	return 0
}

// before compares times; steps without a time are last.
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

// idTime returns the time in an id of version 7 or 1, and otherwise the zero time.
func idTime(id gocql.UUID) time.Time {
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

// biographer collects the history of one event.
type biographer struct {
	*biographySources
	id   gocql.UUID
	text string // the id as it was asked for
	body BiographyBody
	// at is the approximate time when the event was stored; zero if unknown.
	at         time.Time
	deadLetter *dlq.DeadLetter
	// aggregateType is the aggregate type in the record.
	aggregateType string
	out           bool        // where its record is, or that there is none, is known
	record        *kgo.Record // nil if it was not read
	// captured is the step of the reader that found the event.
	captured *BiographyStep
	noRow    []string // why its outbox row was not found
	unread   bool     // the topics could not be read
	// subscription is the name of the subscription whose dead letter it is.
	subscription string
}

func (b *biographer) add(st BiographyStep) { b.body.Steps = append(b.body.Steps, st) }
func (b *biographer) gap(format string, args ...any) {
	b.body.Gaps = append(b.body.Gaps, fmt.Sprintf(format, args...))
}

// write reads the dead letter first, because it contains the places of the row and the
// record.
func (b *biographer) write(ctx context.Context) error {
	if err := b.readDeadLetter(ctx); err != nil {
		return err
	}
	if b.subscription != "" {
		return nil
	}
	stored := b.searchRows(ctx)
	if !b.out {
		b.readTopics(ctx)
		if !stored && b.out { // the record contains the key of the row
			stored = b.searchRows(ctx)
		}
	}
	if !stored {
		b.body.Gaps = append(b.body.Gaps, b.noRow...)
	}
	b.readSubscriptions(ctx)
	return nil
}

// readSubscriptions reads the state of the event in subscriptions.
func (b *biographer) readSubscriptions(ctx context.Context) {
	if b.record == nil || b.subscriptions == nil {
		return
	}
	all, err := b.subscriptions.Of(ctx, b.record)
	if err != nil {
		b.gap("Its state in subscriptions is unknown: %v.", err)
		return
	}
	b.body.Subscriptions = all
}

func (b *biographer) readDeadLetter(ctx context.Context) error {
	of := b.id
	l, err := b.deadLetters.Read(ctx, of)
	if errors.Is(err, dlq.ErrNotFound) {
		if of, err = b.deadLetters.FindOriginal(ctx, b.id); errors.Is(err, dlq.ErrNotFound) {
			return nil
		}
		if err == nil {
			b.body.EditOf = of.String()
			l, err = b.deadLetters.Read(ctx, of)
		}
	}
	if errors.Is(err, dlq.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	b.deadLetter = &l
	if b.body.DeadLetter = b.body.EditOf == ""; b.body.DeadLetter {
		b.body.DeadLetterID = of.String()
	}
	b.body.AggregateID, b.body.EventType, b.body.Sequence = l.AggregateID, l.EventType, l.Sequence
	if l.WrittenAt > 0 {
		b.at = time.UnixMicro(l.WrittenAt).UTC()
	}
	history, err := b.deadLetters.History(ctx, of)
	if err != nil {
		return err
	}
	source := "dead letter " + of.String()
	for _, c := range history {
		st := BiographyStep{Kind: "dead_letter_changed", What: string(c.Action), At: when(c.At), Source: source}
		st.Detail = changeDetail(&c)
		switch {
		case c.Action == dlq.ActionWrite:
			st.Kind, st.What = "dead_letter", "became a dead letter"
			if state := l.Metadata["breaker"]; state != "" {
				st.Detail += "; breaker " + state + " at the last failure"
			}
		case c.Action.Edits():
			st.Kind = "edited"
		}
		b.add(st)
	}
	if name, ok := dlq.ParseSubscription(l.Table); ok {
		b.ofSubscription(name)
		return nil
	}
	b.body.Attempts, b.body.Breaker = l.Attempts, l.Metadata["breaker"]
	b.foundBy(l.Metadata["captured"], source)
	if l.EditedID != (gocql.UUID{}) && l.EditedID != b.id {
		b.body.EditedTo = l.EditedID.String()
		b.gap("The event published in its place has its own id: see edited_to.")
		b.out = true // there is no record with this id
	} else if o := l.Outcome; o.Topic != "" {
		b.out = true
		b.add(BiographyStep{
			Kind: "published", What: "published", At: when(l.ResolvedAt), Source: source, Topic: o.Topic, Partition: &o.Partition, Offset: &o.Offset,
			Detail: fmt.Sprintf("%s: %s, partition %d, offset %d; %s", o.Kind, o.Topic, o.Partition, o.Offset, b.readReplay(ctx, o.Topic, o.Partition, o.Offset)),
		})
	}
	if b.captured == nil {
		b.gap("The reader is unknown: an earlier version of the relay wrote the dead letter.")
	}
	return nil
}

// changeDetail returns the reason, the outcome and the actor of a change, and its new status.
func changeDetail(c *dlq.Change) string {
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
	return strings.Join(parts, "; ")
}

// ofSubscription ends the history of the dead letter of a subscription: the relay has not
// published its id, and it has no outbox row.
func (b *biographer) ofSubscription(name string) {
	l := b.deadLetter
	b.subscription, b.body.Attempts = name, l.Attempts
	place := "topic " + l.Topic
	if p, o := l.Metadata["partition"], l.Metadata["offset"]; p != "" && o != "" {
		place += ", partition " + p + ", offset " + o
	}
	if event := l.Metadata["event_id"]; event != "" {
		b.gap("This is the dead letter of subscription %s for event %s in %s: see the history of that event.", name, event, place)
	} else {
		b.gap("This is the dead letter of subscription %s for a record in %s.", name, place)
	}
}

// foundBy sets the reader that captured the event. It ignores an empty or unknown reader.
func (b *biographer) foundBy(captured, source string) {
	st := BiographyStep{Kind: "captured", Source: source}
	switch captured {
	case rows.CapturedTail:
		st.What, st.Detail = "captured by the tail reader", "it read the row in the CDC log soon after it was stored"
	case rows.CapturedSweep:
		st.What, st.Detail = "captured by the sweep reader", "it read the row in the CDC log after the confidence window; the tail reader had not published it"
	case rows.CapturedKey:
		st.What, st.Detail = "captured by a lookup in the outbox table", "a later event of its aggregate was read first, or outbox verify requested it"
	case rows.CapturedBackfill:
		st.What, st.Detail = "captured by a backfill", "a scan of the outbox table found it"
	default:
		return
	}
	b.body.Captured, b.captured = captured, &st
}
