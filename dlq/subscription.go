package dlq

import "strings"

// subscriptionPrefix begins the Table of the dead letters of a subscription. No keyspace
// of an outbox table may have this name.
const subscriptionPrefix = "subscription."

// ReservedKeyspace is the keyspace name that outbox tables cannot use, because the dead
// letters of subscriptions do.
const ReservedKeyspace = "subscription"

// SubscriptionOf returns the name of the subscription whose dead letters have this
// Table. ok is false for the table of an outbox. The dead letter of a subscription is
// delivered again to that subscription and never published; it has no outbox row.
func SubscriptionOf(table string) (name string, ok bool) {
	name, ok = strings.CutPrefix(table, subscriptionPrefix)
	return name, ok && name != ""
}
