package dlq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
)

// subscriptionPrefix begins the Table of the dead letters of a subscription. No keyspace
// of an outbox table may have this name.
const subscriptionPrefix = "subscription."

// ReservedKeyspace is the keyspace name that outbox tables cannot use, because the dead
// letters of subscriptions do.
const ReservedKeyspace = "subscription"

// ClassRedelivery is the error class of a message that an operator redelivers to a subscription.
// It has not failed.
const ClassRedelivery = "redelivery"

// ParseSubscription returns the name of the subscription whose dead letters have this
// Table. ok is false for the table of an outbox. The dead letter of a subscription is
// delivered again to that subscription and never published; it has no outbox row.
func ParseSubscription(table string) (name string, ok bool) {
	name, ok = strings.CutPrefix(table, subscriptionPrefix)
	return name, ok && name != ""
}

// sameRecord returns ErrOtherRecord if the stored dead letter with the id of row is of an event of
// another aggregate or, for a subscription, of another record. A purged one of a subscription has
// no content to compare. entry is the stored one without its content.
func (s *Store) sameRecord(ctx context.Context, row, entry *DeadLetter) error {
	if _, ok := ParseSubscription(row.Table); !ok {
		if !entry.MayBelongTo(row.AggregateID) && !row.MayBelongTo(entry.AggregateID) {
			return fmt.Errorf("write dead letter %s: %w", row.EventID, ErrOtherRecord)
		}
		return nil
	}
	stored, err := s.Read(ctx, row.EventID)
	if errors.Is(err, ErrNotFound) || err == nil && !stored.PurgedAt.IsZero() {
		return nil
	}
	if err == nil && !SameRecord(row, &stored) {
		err = ErrOtherRecord
	}
	if err != nil {
		return fmt.Errorf("write dead letter %s: %w", row.EventID, err)
	}
	return nil
}

// SameRecord reports whether two dead letters of a subscription are of one record: place,
// key, event and payload are equal. Attempts, errors, the host and the first delivery may differ.
func SameRecord(a, b *DeadLetter) bool {
	place := func(l *DeadLetter) map[string]string {
		m := maps.Clone(l.Metadata)
		delete(m, "host")
		delete(m, "first_delivered")
		return m
	}
	return a.Table == b.Table && a.Topic == b.Topic && a.AggregateID == b.AggregateID && a.EventType == b.EventType && a.WrittenAt == b.WrittenAt &&
		bytes.Equal(a.Payload, b.Payload) && maps.Equal(place(a), place(b))
}
