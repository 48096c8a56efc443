package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// Messages for immediate and later delivery, and dead letters, are stored and
// read while a node is frozen.
func TestServices_OneNodeFrozen(t *testing.T) {
	inBubble(t, func(w *world) {
		s, err := messages.NewService(w.session, messages.Config{Topics: []string{"billing"}})
		if err != nil {
			w.Fatal(err)
		}
		deadLetters, err := dlq.Open(w.session, schema.DefaultKeyspace)
		if err != nil {
			w.Fatal(err)
		}
		w.after(time.Second, func() { w.db.Freeze(2) })
		w.mustBeQuick(w.every(50*time.Millisecond, 8*time.Second, func(ctx context.Context, i int) error {
			switch i % 3 {
			case 0:
				_, err := s.Accept(ctx, messages.NewMessage{Topic: "billing", Payload: json.RawMessage("{}")}, messages.Options{})
				return err
			case 1: // package schedule stores it
				_, err := s.Accept(ctx, messages.NewMessage{Topic: "billing", Payload: json.RawMessage("{}"), Delay: "1h"}, messages.Options{})
				return err
			}
			l := deadLetter(i)
			if _, err := deadLetters.Write(ctx, l); err != nil {
				return err
			}
			_, err := deadLetters.Read(ctx, l.EventID)
			return err
		}))
	})
}

func deadLetter(i int) *dlq.DeadLetter {
	return &dlq.DeadLetter{
		Table: "outbox.outbox_messages", EventID: gocql.MustRandomUUID(), AggregateID: fmt.Sprint(i), AggregateType: "order", EventType: "OrderCreated",
		Sequence: 1, Payload: []byte("{}"), ContentType: "application/json", CreatedAt: time.Now().UTC(), WrittenAt: time.Now().UnixMicro(),
		Topic: "OrderCreated", ErrorClass: "record_too_large", ErrorCode: "MESSAGE_TOO_LARGE", ErrorText: "too large", Attempts: 1, Strategy: dlq.StrategyImmediate,
	}
}
