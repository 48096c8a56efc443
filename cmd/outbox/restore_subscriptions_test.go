package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
)

// subscribed is a system with the subscription mail, which is restored.
type subscribed struct {
	*restored
	p    *advice
	url  string
	stop func() // the subscriptions
}

func setupSubscribed(t *testing.T, p *advice) *subscribed {
	t.Helper()
	s := &subscribed{restored: setupRestored(t), p: p}
	s.serve()
	if _, err := s.client().Put(t.Context(), client.Subscription{Name: "mail", Topics: []string{"things"}, Start: "earliest"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// serve runs outbox subscriptions serve.
func (s *subscribed) serve() { s.url, s.stop = s.startSubscriptions(s.t) }

func (s *subscribed) client() *client.Client { return &client.Client{URL: s.url} }

// stopAll stops the relay and the subscriptions.
func (s *subscribed) stopAll() {
	s.stopRelay()
	s.stop()
}

// backUp copies folders while nothing runs.
func (s *subscribed) backUp(names ...string) {
	s.t.Helper()
	s.stop()
	s.restored.backUp(names...)
	s.serve()
}

// receives receives and acknowledges messages until those with each number of the aggregate are among
// them. The message with the number nack is returned for an hour instead.
func (s *subscribed) receives(a gocql.UUID, nack int64, numbers ...int64) {
	s.t.Helper()
	left := make(map[int64]bool)
	for _, n := range numbers {
		left[n] = true
	}
	s.until(fmt.Sprintf("%v are received", numbers), func() bool {
		some, err := s.client().Receive(s.t.Context(), "mail", client.ReceiveOptions{Max: 10})
		if err != nil {
			return false
		}
		for i := range some {
			m, err := &some[i], error(nil)
			if m.AggregateID == a.String() && m.Sequence == nack {
				_, err = s.client().Nack(s.t.Context(), "mail", client.Settling{Receipt: m.Receipt, Delay: time.Hour, Reason: "no mail server"})
			} else {
				_, err = s.client().Ack(s.t.Context(), "mail", m.Receipt)
			}
			if err != nil {
				s.t.Error(err)
			}
			if m.AggregateID == a.String() {
				delete(left, m.Sequence)
			}
		}
		return len(left) == 0
	})
}

// waits waits until so many messages wait for another delivery.
func (s *subscribed) waits(want int64) {
	s.t.Helper()
	s.until("messages wait for another delivery", func() bool {
		status, err := s.client().Status(s.t.Context(), "mail")
		return err == nil && len(status.Partitions) == 3 && status.Deferred == want
	})
}

// gone waits until the messages without a record are dead letters.
func (s *subscribed) gone(section string) {
	s.t.Helper()
	s.until("a message is a dead letter", func() bool {
		return strings.Contains(s.execute(cli.ExitOK, s.p.take(s.t, section, "outbox dlq list")), "ThingHappened")
	})
}

// redelivers delivers the messages published since a time once more.
func (s *subscribed) redelivers(section string, since time.Time) {
	s.t.Helper()
	s.execute(cli.ExitWaits, s.p.take(s.t, section, "outbox subscriptions redeliver", "TIME", since.UTC().Format(time.RFC3339Nano)), "--kafka-seeds", s.e.KafkaAddr, "--wait", "0")
}

// accounts fails the test unless verify finds no problem of the subscription.
func (s *subscribed) accounts(section string) {
	s.t.Helper()
	s.execute(cli.ExitOK, s.p.take(s.t, section, "outbox verify --subscription"))
}

// A message has begun to wait before the backup, another one after it. The restore undoes the latter,
// which is delivered once more.
func restoreSubscriptions(t *testing.T, p *advice) {
	const section = "The database"
	s := setupSubscribed(t, p)
	a, before := outbox.NewID().UUID(), outbox.NewID().UUID()
	s.publishes(before, 1)
	s.receives(before, 1, 1)
	s.waits(1)
	s.backUp(database)
	began := time.Now()
	s.publishes(a, 1, 2)
	s.receives(a, 2, 1, 2)
	s.waits(2)
	s.stopAll()
	s.restore(database)
	s.newEpoch(p, section)
	s.startRelay()
	s.ready()
	s.serve()
	s.waits(1)
	s.redelivers(section, began)
	s.receives(a, 0, 1, 2)
	s.publishes(a, 1)
	s.receives(a, 0, 1)
	s.waits(1)
	s.accounts(section)
	s.stopAll()
}

// The copy of the topics ends before messages that were received or wait for another delivery.
func restoreSubscribedTopics(t *testing.T, p *advice) {
	const section = "The topics"
	s := setupSubscribed(t, p)
	a := outbox.NewID().UUID()
	s.publishes(a, 1)
	s.receives(a, 0, 1)
	s.backUp(topics)
	s.publishes(a, 2, 3)
	s.receives(a, 3, 2, 3)
	s.waits(1)
	s.stopAll()
	s.restore(topics)
	s.serve()
	s.gone(section)
	s.startRelay()
	s.ready()
	s.repair(p.take(t, section, "outbox verify --repair"))
	s.receives(a, 0, 2, 3)
	s.publishes(a, 4)
	s.receives(a, 0, 4)
	s.execute(cli.ExitOK, p.take(t, section, "outbox dlq discard"))
	s.accounts(section)
	s.stopAll()
}

// Topics that are created again are delivered from their start. What waited for another delivery is a
// dead letter, and the subscription reports the deleted topic until somebody acknowledges it.
func restoreSubscribedLostTopics(t *testing.T, p *advice) {
	const section = "The topics"
	s := setupSubscribed(t, p)
	a := outbox.NewID().UUID()
	s.publishes(a, 1, 2)
	s.receives(a, 2, 1, 2)
	s.waits(1)
	s.stopAll()
	if _, err := kadm.NewClient(s.restored.client).DeleteTopics(t.Context(), "things"); err != nil {
		t.Fatal(err)
	}
	s.serve()
	s.startRelay()
	s.ready()
	s.repair(p.take(t, section, "outbox verify --repair"))
	s.receives(a, 0, 1, 2)
	s.gone(section)
	s.execute(cli.ExitOK, p.take(t, section, "outbox dlq discard"))
	var out bytes.Buffer
	if code := run(append(p.take(t, section, "outbox subscriptions acknowledge-skips"), "--api-subscriptions-url", s.url), &out, &out); code != cli.ExitOK {
		t.Errorf("exit status %d: %s", code, out.String())
	}
	s.accounts(section)
	s.stopAll()
}

// Database and topics are restored from copies of different times.
func restoreSubscribedBoth(t *testing.T, p *advice, newer bool) {
	const section = "Both"
	s := setupSubscribed(t, p)
	a := outbox.NewID().UUID()
	first, second := topics, database
	if newer {
		first, second = database, topics
	}
	s.publishes(a, 1)
	s.receives(a, 0, 1)
	s.backUp(first)
	began := time.Now()
	s.publishes(a, 2)
	s.receives(a, 2, 2)
	s.waits(1)
	s.backUp(second)
	s.publishes(a, 3)
	s.stopAll()
	s.restore(database, topics)
	s.newEpoch(p, section)
	s.serve()
	if !newer {
		s.gone(section)
	}
	s.startRelay()
	s.ready()
	s.repair(p.take(t, section, "outbox verify --repair"))
	if newer {
		s.redelivers(section, began)
	}
	s.receives(a, 0, 2)
	if !newer {
		s.execute(cli.ExitOK, p.take(t, section, "outbox dlq discard"))
	}
	s.publishes(a, 3)
	s.receives(a, 0, 3)
	s.accounts(section)
	s.stopAll()
}
