package admin

import (
	"context"
	"encoding/base64"
	"time"
	"unicode/utf8"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// Summary is a dead letter in a list.
type Summary struct {
	EventID       string     `json:"event_id" format:"uuid"`
	Table         string     `json:"table" doc:"The outbox table, keyspace.table, or of a subscription subscription.NAME"`
	AggregateID   string     `json:"aggregate_id"`
	AggregateType string     `json:"aggregate_type"`
	EventType     string     `json:"event_type"`
	Sequence      int64      `json:"sequence,omitempty" doc:"The sequence number of the event in its aggregate; absent in tables without sequence numbers"`
	Priority      int        `json:"priority" doc:"Between -100 and 100; jobs with by_priority replay higher ones first"`
	Tags          []string   `json:"tags,omitempty" nullable:"false"`
	Topic         string     `json:"topic" doc:"The topic of the event; empty if unknown"`
	Status        dlq.Status `json:"status" enum:"pending,blocked,processing,failed,suspended,resolved,archived"`
	ResolvedBy    string     `json:"resolved_by,omitempty" enum:"replayed,redirected,found,discarded,unblocked,by_hand" doc:"How it was resolved; replayed, found and unblocked mean that its event is in its topic, redirected that it is in another one"`
	Version       int64      `json:"version" doc:"Increases with every change of the dead letter"`
	Unblocked     bool       `json:"unblocked" doc:"It does not block later events of its aggregate"`
	ErrorClass    string     `json:"error_class"`
	ErrorExcerpt  string     `json:"error_excerpt,omitempty" doc:"The beginning of the error's text; only in lists"`
	Attempts      int        `json:"attempts" doc:"Attempts to publish in total"`
	Replays       int        `json:"replays" doc:"Failed replays"`
	Repeats       int        `json:"failure_repeats,omitempty" doc:"Consecutive failures with the same error"`
	FirstFailedAt time.Time  `json:"first_failed_at"`
	LastFailedAt  *time.Time `json:"last_failed_at,omitempty"`
	CreatedAt     *time.Time `json:"created_at,omitempty" doc:"Time of the event"`
	DeliverAt     *time.Time `json:"deliver_at,omitempty"`
	Strategy      string     `json:"strategy,omitempty" doc:"The replay strategy"`
	Rule          string     `json:"rule,omitempty" doc:"The rule that chose the strategy"`
	NextAttempt   *time.Time `json:"next_attempt,omitempty" doc:"Earliest time of the next automatic replay"`
	WaitsFor      string     `json:"waits_for,omitempty" doc:"The condition that it waits for, as text"`
	ClaimedBy     string     `json:"claimed_by,omitempty"`
	ClaimedUntil  *time.Time `json:"claimed_until,omitempty"`
}

// ListedDeadLetter is a dead letter in a list that may have payloads.
type ListedDeadLetter struct {
	Summary
	PayloadText   *string `json:"payload_text,omitempty" doc:"With with_payload: the payload, if it is UTF-8"`
	PayloadBase64 *string `json:"payload_base64,omitempty" doc:"With with_payload: the payload, if it is not UTF-8"`
	ContentType   string  `json:"content_type,omitempty" doc:"With with_payload: the content type of the payload"`
}

func newSummary(l *dlq.DeadLetter, holds []dlq.Hold, now time.Time) Summary {
	return Summary{
		EventID: l.EventID.String(), Table: l.Table, AggregateID: l.AggregateID, AggregateType: l.AggregateType, EventType: l.EventType,
		Sequence: l.Sequence, Priority: l.Priority, Tags: l.Tags, Topic: l.Topic, Status: l.Status, ResolvedBy: string(l.Outcome.Kind), Version: l.Version, Unblocked: l.Unblocked, ErrorClass: l.ErrorClass,
		Attempts: l.Attempts, Replays: l.Replays, Repeats: l.FailureRepeats, FirstFailedAt: l.FirstFailedAt.UTC(), LastFailedAt: when(l.LastFailedAt),
		CreatedAt: when(l.CreatedAt), DeliverAt: when(l.DeliverAt), Strategy: l.Strategy, Rule: l.Rule, NextAttempt: when(l.NextAttempt),
		WaitsFor: l.WaitsFor(holds, now), ClaimedBy: l.ClaimedBy, ClaimedUntil: when(l.ClaimedUntil),
	}
}

// DeadLetterBody is a complete dead letter.
type DeadLetterBody struct {
	Summary
	// The payload in two forms; both are absent for a null payload.
	PayloadText   *string           `json:"payload_text,omitempty" doc:"The payload, if it is UTF-8"`
	PayloadBase64 *string           `json:"payload_base64,omitempty" doc:"The payload, byte for byte; absent if it is null"`
	PayloadBytes  int               `json:"payload_bytes"`
	PayloadJSON   *string           `json:"payload_decoded,omitempty" doc:"JSON of a payload in the wire format of a schema registry; absent if it cannot be decoded, or if the JSON has more than 1 MiB"`
	ContentType   string            `json:"content_type"`
	Headers       map[string]string `json:"headers"`
	WrittenAt     *time.Time        `json:"written_at,omitempty" doc:"The write time of the event's CDC row"`
	ErrorCode     string            `json:"error_code,omitempty"`
	ErrorText     string            `json:"error_text,omitempty"`
	ErrorChain    []string          `json:"error_chain,omitempty" doc:"The messages of the wrapped errors, outermost first"`
	Metadata      map[string]string `json:"metadata,omitempty" doc:"Metadata of the relay at the last failure"`
	Raw           map[string]string `json:"raw,omitempty" doc:"The readable columns of a row that is not an event, as CQL text"`
	Outcome       *OutcomeBody      `json:"outcome,omitempty"`
	ResolvedAt    *time.Time        `json:"resolved_at,omitempty"`
	ArchiveObject string            `json:"archive_object,omitempty" doc:"The object of the archive that contains it, if it is archived"`
	EditedTo      string            `json:"edited_to,omitempty" format:"uuid" doc:"The edited event that is published in its place"`
	Edit          *ContentBody      `json:"edit,omitempty" doc:"The edited payload and headers, which are published instead of those above"`
	History       []dlq.Change      `json:"history" doc:"Its changes, oldest first"`
	Position      int               `json:"position,omitempty" doc:"Its position among the open dead letters of its aggregate, from 1; absent if it is not open"`
	ChainLength   int               `json:"chain_length,omitempty" doc:"Number of open dead letters of its aggregate"`
	BlockedBy     string            `json:"blocked_by,omitempty" format:"uuid" doc:"The dead letter that blocks it"`
	Followers     []Follower        `json:"followers" doc:"The first dead letters that are blocked behind it"`
	FollowerCount int               `json:"follower_count" doc:"Number of dead letters that are blocked behind it"`
	May           []dlq.Action      `json:"may" doc:"The actions that its status allows, regardless of the role"`
}

// ContentBody is the published content of an edited dead letter.
type ContentBody struct {
	PayloadText   *string           `json:"payload_text,omitempty"`
	PayloadBase64 *string           `json:"payload_base64,omitempty"`
	ContentType   string            `json:"content_type"`
	Headers       map[string]string `json:"headers"`
	Topic         string            `json:"topic,omitempty" doc:"The topic to publish to, if it is another one than that of the event"`
	By            string            `json:"by"`
	Reason        string            `json:"reason,omitempty"`
	At            time.Time         `json:"at"`
}

func newContentBody(e *dlq.Edited) *ContentBody {
	if e == nil {
		return nil
	}
	b := &ContentBody{ContentType: e.ContentType, Headers: e.Headers, Topic: e.Topic, By: e.Actor.Name, Reason: e.Actor.Reason, At: e.At.UTC()}
	if b.Headers == nil {
		b.Headers = map[string]string{}
	}
	b.PayloadText, b.PayloadBase64 = forms(e.Payload)
	return b
}

// OutcomeBody is the outcome of a dead letter.
type OutcomeBody struct {
	Kind      dlq.OutcomeKind `json:"kind"`
	Topic     string          `json:"topic,omitempty"`
	Partition *int32          `json:"partition,omitempty"`
	Offset    *int64          `json:"offset,omitempty"`
	Note      string          `json:"note,omitempty"`
}

func newOutcomeBody(o *dlq.Outcome) *OutcomeBody {
	if o.Kind == "" {
		return nil
	}
	out := &OutcomeBody{Kind: o.Kind, Topic: o.Topic, Note: o.Note}
	if o.Topic != "" {
		out.Partition, out.Offset = &o.Partition, &o.Offset
	}
	return out
}

// Follower is a dead letter that is blocked behind another one.
type Follower struct {
	EventID   string     `json:"event_id" format:"uuid"`
	EventType string     `json:"event_type"`
	Sequence  int64      `json:"sequence,omitempty"`
	Status    dlq.Status `json:"status"`
}

// maxFollowers is the maximum number of followers in a response.
const maxFollowers = 100

// decodeTime bounds the wait for the schema of a payload, and maxDecoded its JSON.
const (
	decodeTime = 2 * time.Second
	maxDecoded = 1 << 20
)

// decodePayload returns the JSON of a payload in the wire format of the schema registry; nil if it
// has none.
func (ep *deadLetterEndpoints) decodePayload(ctx context.Context, payload []byte) *string {
	ctx, cancel := context.WithTimeout(ctx, decodeTime)
	defer cancel()
	data, err := ep.registry.JSON(ctx, payload)
	if err != nil || data == nil || len(data) > maxDecoded {
		return nil
	}
	text := string(data)
	return &text
}

// forms returns a payload as text, if it is UTF-8, and as base64; both are nil for a null
// payload.
func forms(p []byte) (text, coded *string) {
	if p == nil {
		return nil, nil
	}
	c := base64.StdEncoding.EncodeToString(p)
	if utf8.Valid(p) {
		t := string(p)
		text = &t
	}
	return text, &c
}

// chain sets the position of the dead letter among the ones of its aggregate.
func (b *DeadLetterBody) chain(l *dlq.DeadLetter, chain []dlq.ChainEntry) {
	b.Followers = []Follower{}
	b.ChainLength = len(chain)
	head := ""
	for i, e := range chain {
		if e.EventID == l.EventID {
			b.Position = i + 1
			if l.Status == dlq.Blocked {
				b.BlockedBy = head
			}
			continue
		}
		if head == "" && e.Status != dlq.Blocked && !e.Unblocked {
			head = e.EventID.String()
		}
		if b.Position == 0 || e.Status != dlq.Blocked {
			continue
		}
		b.FollowerCount++
		if len(b.Followers) < maxFollowers {
			b.Followers = append(b.Followers, Follower{e.EventID.String(), e.EventType, e.Sequence, e.Status})
		}
	}
}
