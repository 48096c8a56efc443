package delivery

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
)

// View is a delivery as people and scripts see it.
type View struct {
	ID          string             `json:"id" format:"uuid"`
	Rule        string             `json:"rule"`
	Plugin      string             `json:"plugin,omitempty" doc:"The target or plugin that the rule leads to"`
	State       State              `json:"state" enum:"pending,failed,delivered"`
	Attempts    int                `json:"attempts" doc:"Since it began or was last repeated; 0 of a failed one says that its rule could not decide"`
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
	Repeats     int                `json:"repeats,omitempty" doc:"How often somebody asked for it again"`
	RepeatedBy  string             `json:"repeated_by,omitempty"`
	Reason      string             `json:"reason,omitempty"`
	Tries       []Try              `json:"tries,omitempty" doc:"The last 20 attempts, the oldest first, those before a repeat included; of a single delivery"`
	PayloadText *string            `json:"payload_text,omitempty" doc:"The event's payload if it is text, character for character: who reads JSON may round its numbers; of a single delivery"`
	Event       *kafkarecord.Event `json:"event,omitempty" doc:"The event, of a single delivery"`
}

// ViewOf is how d is seen; with the event if d has its record.
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
