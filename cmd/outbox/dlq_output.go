package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// deadLetterView is a dead letter as JSON. Its keys are the columns of the table.
type deadLetterView struct {
	EventID       string            `json:"event_id"`
	Status        dlq.Status        `json:"status"`
	Table         string            `json:"table"`
	AggregateID   string            `json:"aggregate_id"`
	AggregateType string            `json:"aggregate_type"`
	EventType     string            `json:"event_type"`
	Sequence      int64             `json:"seq"`
	Priority      int               `json:"priority"`
	Tags          []string          `json:"tags,omitempty"`
	Topic         string            `json:"topic,omitempty"`
	ErrorClass    string            `json:"error_class"`
	ErrorCode     string            `json:"error_code,omitempty"`
	ErrorText     string            `json:"error_text,omitempty"`
	ErrorChain    []string          `json:"error_chain,omitempty"`
	Attempts      int               `json:"attempts"`
	Replays       int               `json:"replays"`
	FirstFailedAt time.Time         `json:"first_failed_at"`
	LastFailedAt  time.Time         `json:"last_failed_at"`
	Strategy      string            `json:"strategy,omitempty"`
	Rule          string            `json:"rule,omitempty"`
	NextAttempt   *time.Time        `json:"next_attempt,omitempty"`
	Waiting       string            `json:"waiting,omitempty"`
	Released      bool              `json:"released,omitempty"`
	ClaimedBy     string            `json:"claimed_by,omitempty"`
	ClaimedUntil  *time.Time        `json:"claimed_until,omitempty"`
	Outcome       string            `json:"outcome,omitempty"`
	OutcomeNote   string            `json:"outcome_note,omitempty"`
	ResolvedAt    *time.Time        `json:"resolved_at,omitempty"`
	CreatedAt     *time.Time        `json:"created_at,omitempty"`
	DeliverAt     *time.Time        `json:"deliver_at,omitempty"`
	Version       int64             `json:"version"`
	EditedID      string            `json:"edited_id,omitempty"`
	ContentType   string            `json:"content_type,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	// Payload is set if the payload is text, PayloadBase64 if not.
	Payload       *string           `json:"payload,omitempty"`
	PayloadBase64 []byte            `json:"payload_base64,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	Raw           map[string]string `json:"raw,omitempty"`
}

func viewOf(l *dlq.DeadLetter) deadLetterView {
	v := deadLetterView{
		EventID: l.EventID.String(), Status: l.Status, Table: l.Table, AggregateID: l.AggregateID, AggregateType: l.AggregateType,
		EventType: l.EventType, Sequence: l.Sequence, Priority: l.Priority, Tags: l.Tags, Topic: l.Topic, ErrorClass: l.ErrorClass, ErrorCode: l.ErrorCode,
		ErrorText: l.ErrorText, ErrorChain: l.ErrorChain, Attempts: l.Attempts, Replays: l.Replays, FirstFailedAt: l.FirstFailedAt,
		LastFailedAt: l.LastFailedAt, Strategy: l.Strategy, Rule: l.Rule, Waiting: l.WaitsFor(nil, time.Now()), NextAttempt: timeOrNil(l.NextAttempt), Released: l.Released,
		ClaimedBy: l.ClaimedBy, ClaimedUntil: timeOrNil(l.ClaimedUntil), OutcomeNote: l.Outcome.Note, ResolvedAt: timeOrNil(l.ResolvedAt),
		CreatedAt: timeOrNil(l.CreatedAt), DeliverAt: timeOrNil(l.DeliverAt), Version: l.Version, ContentType: l.ContentType,
		Headers: l.Headers, Metadata: l.Metadata, Raw: l.Raw,
	}
	if l.Outcome.Kind != "" {
		v.Outcome = l.Outcome.String()
	}
	v.Payload, v.PayloadBase64 = textOrBytes(l.Payload)
	if l.EditedID != (gocql.UUID{}) {
		v.EditedID = l.EditedID.String()
	}
	return v
}

// textOrBytes returns a payload as text, or as bytes if it is not text.
func textOrBytes(payload []byte) (*string, []byte) {
	switch {
	case payload == nil:
		return nil, nil
	case utf8.Valid(payload):
		s := string(payload)
		return &s, nil
	}
	return nil, payload
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// deadLetterTable prints dead letters as a list.
var deadLetterTable = cli.Table[dlq.DeadLetter]{
	Header: "EVENT\tSTATUS\tERROR\tTYPE\tAGGREGATE\tSEQ\tFIRST FAILED\tNEXT ATTEMPT\tPRIORITY\tATTEMPTS\tTAGS\tTOPIC\tTABLE",
	Wide:   5,
	Row: func(w io.Writer, l dlq.DeadLetter) {
		status := string(l.Status)
		if l.Released && l.Status.Open() {
			status += " (released)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", l.EventID, status, cli.Clean(l.ErrorClass, 40), cli.Clean(l.EventType, 40),
			cli.Clean(l.AggregateID, 40), l.Sequence, cli.At(w, l.FirstFailedAt), cli.At(w, l.NextAttempt), l.Priority, l.Attempts, strings.Join(l.Tags, ","),
			cli.Clean(l.Topic, 60), cli.Clean(l.Table, 60))
	},
	View: func(l dlq.DeadLetter) any { return viewOf(&l) },
	None: "no dead letter matches",
}

// counts prints the entries of a map, largest number first.
func counts[K ~string, N int | int64](w io.Writer, title string, m map[K]N) {
	keys := make([]K, 0, len(m))
	for k, n := range m {
		if n > 0 {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return
	}
	slices.SortFunc(keys, func(a, b K) int { return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b)) })
	fmt.Fprintf(w, "%s\n", title)
	for _, k := range keys {
		name := cli.Clean(string(k), 60)
		if name == "" {
			name = "(none)"
		}
		fmt.Fprintf(w, "  %8d  %s\n", m[k], name)
	}
}
