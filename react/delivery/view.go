package delivery

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
)

// View is a delivery in the form of the API.
type View struct {
	ID          string             `json:"id" format:"uuid"`
	Rule        string             `json:"rule"`
	Plugin      string             `json:"plugin,omitempty" doc:"Target or plugin of the rule"`
	State       State              `json:"state" enum:"pending,failed,delivered"`
	Attempts    int                `json:"attempts" doc:"Attempts since it began or was last repeated; 0 of a failed one means that its rule was undecidable"`
	Error       string             `json:"error,omitempty" doc:"That of the last attempt that failed"`
	EventID     string             `json:"event_id,omitempty"`
	EventType   string             `json:"event_type,omitempty"`
	AggregateID string             `json:"aggregate_id,omitempty"`
	Topic       string             `json:"topic"`
	Partition   int32              `json:"partition"`
	Offset      int64              `json:"offset"`
	CreatedAt   time.Time          `json:"created_at"`
	ChangedAt   time.Time          `json:"changed_at"`
	NextAttempt *time.Time         `json:"next_attempt,omitempty"`
	Repeats     int                `json:"repeats,omitempty" doc:"Number of requested repeats"`
	RepeatedBy  string             `json:"repeated_by,omitempty"`
	Reason      string             `json:"reason,omitempty"`
	Tries       []Try              `json:"tries,omitempty" doc:"The last 20 attempts, oldest first, including those before a repeat; of a single delivery"`
	PayloadText *string            `json:"payload_text,omitempty" doc:"Payload of the event if it is text, unchanged, because JSON parsers may round numbers; of a single delivery"`
	Event       *kafkarecord.Event `json:"event,omitempty" doc:"The event, of a single delivery"`
}

// ViewOf returns the view of d; with the event if d has its record.
func ViewOf(d *Delivery) View {
	v := View{
		ID: d.ID.String(), Rule: d.Rule, Plugin: d.Plugin, State: d.State, Attempts: d.Attempts, Error: d.Error, EventID: d.EventID, EventType: d.EventType,
		AggregateID: d.AggregateID, Topic: d.Topic, Partition: d.Partition, Offset: d.Offset, CreatedAt: d.CreatedAt, ChangedAt: d.ChangedAt,
		Tries: d.Tries, Repeats: d.Repeats, RepeatedBy: d.RepeatedBy, Reason: d.Reason,
	}
	if !d.NextAttempt.IsZero() {
		v.NextAttempt = &d.NextAttempt
	}
	if d.Value != nil || d.Headers != nil {
		e := kafkarecord.Decode(d.Record())
		v.Event = &e
		if e.Data != nil || e.Text != nil {
			text := string(e.Payload())
			v.PayloadText = &text
		}
	}
	return v
}
