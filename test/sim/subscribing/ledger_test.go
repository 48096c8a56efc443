package subscribing

import (
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// message is a published message of a subscription.
type message struct {
	name, key, topic string
	partition        int32
	offset           int64
	made             int // how often its topic was deleted before
	at               time.Time
	once, unwanted   bool // from its headers
	deliveries       []*delivery
}

// delivery is a message that a consumer received, or a call of the plugin.
type delivery struct {
	*message
	of           string // name of the message
	by, receipt  string
	start, until time.Time // of the lease
	attempt, max int
	actions      []*action
	*call        // with push delivery
}

// action is a request of a consumer for a delivery.
type action struct {
	subscriptions.Action
	asked, done time.Time
	// code is empty without a response.
	code subscriptions.Code
}

// possible reports whether the action may have been applied.
func (a *action) possible() bool {
	return a.code == "" || a.code == subscriptions.CodeOK || a.code == subscriptions.CodeUnknown || a.code == subscriptions.CodeUnavailable
}

// ends reports whether the action settles a message.
func (a *action) ends() bool {
	return a.Action == subscriptions.ActionAck || a.Action == subscriptions.ActionReject
}

type place struct {
	topic     string
	partition int32
}

// ledger records what happened to a subscription.
type ledger struct {
	subscriptions.Subscription
	w    *world
	runs bool // consumers receive runs of a key

	mu struct {
		sync.Mutex
		messages map[string]*message
		early    map[string][]*delivery // of messages whose publication is not recorded yet
		replayed map[string][]time.Time // requests of operators, by message
		dropped  map[string]time.Time   // discarded dead letters, by message
		purged   time.Time              // messages published before may be gone
		seeks    map[place][]seek
		deleted  map[place]int64 // first offset that the broker has
	}
}

// seek is a request to move a position; ok is false if its outcome is unknown.
type seek struct {
	at     time.Time
	offset int64
	ok     bool
}

func newLedger(w *world, s subscriptions.Subscription) *ledger {
	l := &ledger{Subscription: s, w: w}
	l.mu.messages = make(map[string]*message)
	l.mu.early = make(map[string][]*delivery)
	l.mu.replayed = make(map[string][]time.Time)
	l.mu.dropped = make(map[string]time.Time)
	l.mu.seeks = make(map[place][]seek)
	l.mu.deleted = make(map[place]int64)
	return l
}

// recordPublished records a message, if the subscription has its topic.
func (l *ledger) recordPublished(m *message) {
	selected := false
	for _, t := range l.Topics {
		selected = selected || t == m.topic
	}
	if !selected {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.messages[m.name] = m
	for _, d := range l.mu.early[m.name] {
		d.message = m
	}
	m.deliveries = l.mu.early[m.name]
	delete(l.mu.early, m.name)
}

// recordDelivered records a delivery. visibility is that of the request.
func (l *ledger) recordDelivered(by string, m *subscriptions.Message, visibility time.Duration) *delivery {
	return l.record(by, m, visibility, nil)
}

func (l *ledger) record(by string, m *subscriptions.Message, visibility time.Duration, c *call) *delivery {
	d := &delivery{call: c, of: m.Headers["name"], by: by, receipt: m.Receipt, start: m.LeaseUntil.Add(-visibility), until: m.LeaseUntil, attempt: m.Attempt, max: m.MaxReceive}
	name := d.of
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.counts.deliveries.Add(1)
	if d.message = l.mu.messages[name]; d.message == nil {
		l.mu.early[name] = append(l.mu.early[name], d)
	} else {
		d.message.deliveries = append(d.message.deliveries, d)
		if len(d.message.deliveries) == 2 {
			l.w.counts.again.Add(1)
		}
		if m.Topic != d.topic || m.Partition != d.partition || m.Offset != d.offset {
			l.w.t.Errorf("%s: %s was delivered as %s/%d/%d, it is %s/%d/%d", l.Name, name, m.Topic, m.Partition, m.Offset, d.topic, d.partition, d.offset)
		}
	}
	return d
}

// asks records a request for a delivery before it is sent.
func (l *ledger) asks(d *delivery, a subscriptions.Action) *action {
	one := &action{Action: a, asked: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	d.actions = append(d.actions, one)
	return one
}

// recordAnswered records the result of a request.
func (l *ledger) recordAnswered(a *action, c subscriptions.Code) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.code, a.done = c, time.Now()
	switch {
	case c == subscriptions.CodeOK && a.Action == subscriptions.ActionAck:
		l.w.counts.acknowledged.Add(1)
	case c == subscriptions.CodeLeaseExpired:
		l.w.counts.expired.Add(1)
	case c == subscriptions.CodeUnknown:
		l.w.counts.unknown.Add(1)
	}
}
