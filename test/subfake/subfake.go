// Package subfake is a subscriptions.Service in memory, for tests of what is built on one.
// It has leases, attempts, dead letters and order per key, and no topics: a test publishes
// into it. It follows the clock, also in a synctest bubble.
package subfake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/filter"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Service is an instance with one partition for each subscription. It is safe for
// concurrent use.
type Service struct {
	// Instance is the name in its receipts.
	Instance string

	mu struct {
		sync.Mutex
		subs    map[string]*subscription
		changed chan struct{} // closed and replaced at each change
		fail    error
		code    subscriptions.Code
		seeks   []subscriptions.Seek
		leases  int
		waiting int
	}
}

type subscription struct {
	conf     subscriptions.Subscription
	messages []*message
	next     int64
	dead     []subscriptions.Message
	released int
}

type message struct {
	subscriptions.Message
	due     time.Time
	leased  bool
	settled bool

	received time.Time
	consumer string
}

// New returns an instance without subscriptions.
func New(instance string) *Service {
	s := &Service{Instance: instance}
	s.mu.subs, s.mu.changed = map[string]*subscription{}, make(chan struct{})
	return s
}

// Publish adds an event of a key, whose data is JSON, to a subscription.
func (s *Service) Publish(name, key, data string) {
	s.PublishEvent(name, kafkarecord.Event{Key: key, Type: "Event", Data: []byte(data)})
}

// PublishEvent adds an event to a subscription, which sets its place, time and id.
func (s *Service) PublishEvent(name string, e kafkarecord.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.mu.subs[name]
	e.Topic, e.Offset, e.At, e.ID = "t-"+s.Instance, sub.next, time.Now(), fmt.Sprintf("%s-%d", s.Instance, sub.next)
	m := &message{Message: subscriptions.Message{Event: e}}
	sub.next++
	sub.messages = append(sub.messages, m)
	s.changedLocked()
}

// Fail makes every following call fail; nil ends that.
func (s *Service) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.fail = err
}

// Answer makes Settle return this code without an effect; empty ends that.
func (s *Service) Answer(code subscriptions.Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.code = code
}

// Open returns the number of messages that are neither settled nor dead-lettered.
func (s *Service) Open(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.openLocked(name))
}

// Leased returns the number of messages with a lease.
func (s *Service) Leased(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(slices.DeleteFunc(s.openLocked(name), func(m *message) bool { return !m.leasedAt(time.Now()) }))
}

func (s *Service) openLocked(name string) []*message {
	return slices.DeleteFunc(slices.Clone(s.mu.subs[name].messages), func(m *message) bool { return m.settled })
}

// Waiting returns the number of calls of Receive that wait.
func (s *Service) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.waiting
}

// Dead returns the messages that were dead-lettered.
func (s *Service) Dead(name string) []subscriptions.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.subs[name].dead)
}

// Released returns the number of releases of messages.
func (s *Service) Released(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.subs[name].released
}

// Seeks returns the calls of Seek.
func (s *Service) Seeks() []subscriptions.Seek {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.seeks)
}

func (s *Service) changedLocked() {
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

func (s *Service) findLocked(name string) (*subscription, error) {
	if s.mu.fail != nil {
		return nil, s.mu.fail
	}
	sub := s.mu.subs[name]
	if sub == nil {
		return nil, fmt.Errorf("subscription %q: %w", name, subscriptions.ErrNotFound)
	}
	return sub, nil
}

// Put implements subscriptions.Service.
func (s *Service) Put(_ context.Context, c subscriptions.Subscription, principal string) (subscriptions.Subscription, error) {
	c = c.WithDefaults()
	if err := errors.Join(c.Validate(), filter.Check(c.Filter, c.Transform)); err != nil {
		return c, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.fail != nil {
		return c, s.mu.fail
	}
	sub := cmp.Or(s.mu.subs[c.Name], &subscription{})
	if c.Version == subscriptions.Absent && sub.conf.Version != 0 || c.Version > 0 && c.Version != sub.conf.Version {
		return c, subscriptions.ErrVersion
	}
	if c.KeepPaused {
		c.Paused = sub.conf.Paused
	}
	c.KeepPaused = false
	c.Version, c.ChangedBy, c.ChangedAt = sub.conf.Version+1, principal, time.Now()
	c.CreatedAt = sub.conf.CreatedAt
	if c.Version == 1 {
		c.CreatedAt = c.ChangedAt
	}
	sub.conf, c.Created = c, c.Version == 1
	s.mu.subs[c.Name] = sub
	s.changedLocked()
	return c, nil
}

// Get implements subscriptions.Service.
func (s *Service) Get(_ context.Context, name string) (subscriptions.Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, err := s.findLocked(name)
	if err != nil {
		return subscriptions.Subscription{}, err
	}
	return sub.conf, nil
}

// List implements subscriptions.Service.
func (s *Service) List(context.Context) (out []subscriptions.Subscription, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.mu.subs)) {
		out = append(out, s.mu.subs[name].conf)
	}
	return out, s.mu.fail
}

// Delete implements subscriptions.Service.
func (s *Service) Delete(_ context.Context, name string, version int64, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, err := s.findLocked(name)
	if err != nil {
		return err
	}
	if version != 0 && version != sub.conf.Version {
		return subscriptions.ErrVersion
	}
	delete(s.mu.subs, name)
	return nil
}

// Receive implements subscriptions.Service.
func (s *Service) Receive(ctx context.Context, name string, r subscriptions.Receive) ([]subscriptions.Message, error) {
	end := time.Now().Add(r.Wait)
	for {
		s.mu.Lock()
		sub, err := s.findLocked(name)
		if err == nil {
			err = sub.conf.CheckReceive()
		}
		if err != nil {
			s.mu.Unlock()
			return nil, err
		}
		out, next := s.takeLocked(sub, r)
		changed := s.mu.changed
		if len(out) > 0 || !time.Now().Before(end) {
			s.mu.Unlock()
			return out, nil
		}
		s.mu.waiting++
		s.mu.Unlock()
		if next.IsZero() || next.After(end) {
			next = end
		}
		due := time.NewTimer(time.Until(next))
		select {
		case <-changed:
		case <-due.C:
		case <-ctx.Done():
		}
		due.Stop()
		s.mu.Lock()
		s.mu.waiting--
		s.mu.Unlock()
		if ctx.Err() != nil {
			return nil, nil
		}
	}
}

func (m *message) leasedAt(now time.Time) bool { return m.leased && m.LeaseUntil.After(now) }

// takeLocked leases messages, and returns the next time at which there may be more.
func (s *Service) takeLocked(sub *subscription, r subscriptions.Receive) (out []subscriptions.Message, next time.Time) {
	now, blocked, taken := time.Now(), map[string]bool{}, map[string]int{}
	for _, m := range sub.messages {
		if m.settled || sub.conf.Paused || len(out) == r.Max {
			continue
		}
		until := m.due
		if m.leasedAt(now) {
			until = m.LeaseUntil
		} else if m.leased && m.Attempt >= sub.conf.MaxReceive {
			s.deadLocked(sub, m)
			continue
		}
		if until.After(now) {
			blocked[m.Key] = true
			if next.IsZero() || until.Before(next) {
				next = until
			}
			continue
		}
		if (blocked[m.Key] || taken[m.Key] >= max(1, r.MaxPerKey)) && sub.conf.Ordering != subscriptions.OrderingNone {
			blocked[m.Key] = true
			continue
		}
		taken[m.Key]++
		s.mu.leases++
		m.leased, m.Attempt, m.MaxReceive = true, m.Attempt+1, sub.conf.MaxReceive
		m.received, m.consumer = now, r.Consumer
		m.LeaseUntil = now.Add(cmp.Or(r.VisibilityTimeout, sub.conf.VisibilityTimeout))
		m.Receipt = strings.Join([]string{s.Instance, sub.conf.Name, strconv.FormatInt(m.Offset, 10), strconv.Itoa(s.mu.leases)}, "/")
		if r.AutoAck {
			m.Receipt, m.settled = "", true
		}
		out = append(out, m.Message)
	}
	return out, next
}

func (s *Service) deadLocked(sub *subscription, m *message) {
	m.settled, m.leased = true, false
	sub.dead = append(sub.dead, m.Message)
	s.changedLocked()
}

// Owner returns the instance in a receipt.
func Owner(receipt string) (string, bool) {
	owner, _, ok := strings.Cut(receipt, "/")
	return owner, ok
}

// Settle implements subscriptions.Service.
func (s *Service) Settle(_ context.Context, name string, actions []subscriptions.Settle) ([]subscriptions.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, err := s.findLocked(name)
	if err != nil {
		return nil, err
	}
	out := make([]subscriptions.Result, len(actions))
	for i := range actions {
		if out[i].Code = s.mu.code; out[i].Code == "" {
			out[i] = s.settleLocked(sub, &actions[i])
		}
	}
	return out, nil
}

func (s *Service) settleLocked(sub *subscription, a *subscriptions.Settle) subscriptions.Result {
	parts := strings.Split(a.Receipt, "/")
	if len(parts) != 4 || parts[1] != sub.conf.Name {
		return subscriptions.Result{Code: subscriptions.CodeInvalid, Error: "no receipt of this subscription"}
	}
	now := time.Now()
	at := slices.IndexFunc(sub.messages, func(m *message) bool { return m.Receipt == a.Receipt })
	if at < 0 || sub.messages[at].settled && a.Action != subscriptions.ActionAck || !sub.messages[at].settled && !sub.messages[at].leasedAt(now) {
		return subscriptions.Result{Code: subscriptions.CodeLeaseExpired, Error: "the lease has ended"}
	}
	m := sub.messages[at]
	defer s.changedLocked()
	if a.Action != subscriptions.ActionAck && a.Action != subscriptions.ActionExtend && sub.conf.Ordering != subscriptions.OrderingNone {
		for _, later := range sub.messages[at+1:] { // of the run
			if later.Key == m.Key && later.leasedAt(now) && !later.settled {
				later.leased = false
				later.Attempt--
			}
		}
	}
	switch a.Action {
	case subscriptions.ActionAck:
		m.settled = true
	case subscriptions.ActionNack:
		m.due = now.Add(cmp.Or(a.Delay, sub.conf.Backoff))
		if m.leased = false; m.Attempt >= sub.conf.MaxReceive {
			s.deadLocked(sub, m)
		}
	case subscriptions.ActionRelease:
		m.leased = false
		m.Attempt--
		sub.released++
	case subscriptions.ActionExtend:
		m.LeaseUntil = now.Add(cmp.Or(a.Delay, sub.conf.VisibilityTimeout))
		for _, other := range sub.messages { // of the run
			if other.Key == m.Key && other.leasedAt(now) && !other.settled && sub.conf.Ordering != subscriptions.OrderingNone {
				other.LeaseUntil = m.LeaseUntil
			}
		}
		return subscriptions.Result{Code: subscriptions.CodeOK, LeaseUntil: m.LeaseUntil}
	case subscriptions.ActionReject:
		s.deadLocked(sub, m)
	}
	return subscriptions.Result{Code: subscriptions.CodeOK}
}

// Status implements subscriptions.Service.
func (s *Service) Status(_ context.Context, name string) (subscriptions.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, err := s.findLocked(name)
	if err != nil {
		return subscriptions.Status{}, err
	}
	p := subscriptions.PartitionStatus{Topic: "t-" + s.Instance, Owner: s.Instance, End: sub.next}
	for _, m := range s.openLocked(name) {
		switch now := time.Now(); {
		case m.leasedAt(now):
			p.Leased++
		case m.due.After(now):
			p.Deferred++
		default:
			p.Waiting++
		}
		if p.Oldest.IsZero() {
			p.Oldest, p.Committed = m.At, m.Offset
		}
	}
	p.Lag = p.Waiting + p.Leased + p.Deferred
	out := subscriptions.Status{
		Subscription: sub.conf, Partitions: []subscriptions.PartitionStatus{p}, DeadLetters: len(sub.dead),
		Instances: []subscriptions.InstanceStatus{{Instance: s.Instance, At: time.Now(), Partitions: 1}},
	}
	out.AddPartitions()
	return out, nil
}

// Progress implements subscriptions.Service.
func (s *Service) Progress(_ context.Context, name string, at subscriptions.Place) (subscriptions.Progress, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, err := s.findLocked(name)
	if err != nil {
		return subscriptions.Progress{}, err
	}
	p := subscriptions.Progress{Subscription: name, State: subscriptions.ProgressCompleted}
	if at.Topic != "t-"+s.Instance {
		p.State = subscriptions.ProgressWaiting
		return p, nil
	}
	p.Owner = s.Instance
	for _, m := range s.openLocked(name) {
		if m.Offset == at.Offset {
			p.Attempts, p.State = m.Attempt, subscriptions.ProgressWaiting
			if m.leasedAt(time.Now()) {
				p.State, p.LeaseUntil = subscriptions.ProgressProcessing, m.LeaseUntil.UTC()
			}
		}
	}
	if slices.ContainsFunc(sub.dead, func(m subscriptions.Message) bool { return m.Offset == at.Offset }) {
		p.State = subscriptions.ProgressDeadLettered
	}
	return p, nil
}

// Leases implements subscriptions.Service. The number of a lease is that of its attempt.
func (s *Service) Leases(_ context.Context, name, cursor string, limit int) (subscriptions.LeasePage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.findLocked(name); err != nil {
		return subscriptions.LeasePage{}, err
	}
	var all []subscriptions.Lease
	for _, m := range s.openLocked(name) {
		if m.leasedAt(time.Now()) {
			all = append(all, subscriptions.Lease{
				ID: s.makeLease(m).String(), Topic: m.Topic, Offset: m.Offset, EventID: m.ID, Key: m.Key, Consumer: m.consumer, Attempt: m.Attempt, MaxReceive: m.MaxReceive,
				ReceivedAt: m.received, ExpiresAt: m.LeaseUntil, Owner: s.Instance,
			})
		}
	}
	return subscriptions.NewLeasePage(all, cursor, limit)
}

func (s *Service) makeLease(m *message) subscriptions.LeaseID {
	return subscriptions.LeaseID{Topic: m.Topic, Offset: m.Offset, Number: uint64(m.Attempt)}
}

// AcknowledgeSkips implements subscriptions.Service. It has none.
func (s *Service) AcknowledgeSkips(_ context.Context, name, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.findLocked(name)
	return err
}

// EndLease implements subscriptions.Service.
func (s *Service) EndLease(_ context.Context, name string, lease subscriptions.LeaseID, action subscriptions.Action, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, err := s.findLocked(name)
	if err != nil {
		return err
	}
	if err := sub.conf.CheckEndLease(); err != nil {
		return err
	}
	for _, m := range s.openLocked(name) {
		if m.leasedAt(time.Now()) && s.makeLease(m) == lease {
			m.leased = false
			if m.Attempt--; action == subscriptions.ActionReject {
				s.deadLocked(sub, m)
			}
			s.changedLocked()
			return nil
		}
	}
	return subscriptions.ErrLeaseEnded
}

func (s *Service) setPaused(name string, paused bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, err := s.findLocked(name)
	if err == nil {
		sub.conf.Paused = paused
		sub.conf.Version++
		s.changedLocked()
	}
	return err
}

// Pause implements subscriptions.Service.
func (s *Service) Pause(_ context.Context, name, _ string) error { return s.setPaused(name, true) }

// Resume implements subscriptions.Service.
func (s *Service) Resume(_ context.Context, name, _ string) error { return s.setPaused(name, false) }

// Seek implements subscriptions.Service. It records the request only.
func (s *Service) Seek(_ context.Context, name string, to subscriptions.Seek, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.findLocked(name)
	if err == nil {
		s.mu.seeks = append(s.mu.seeks, to)
	}
	return err
}

// Purge implements subscriptions.Service.
func (s *Service) Purge(_ context.Context, name string, p subscriptions.Purge, _ string) (n int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.findLocked(name); err != nil {
		return 0, err
	}
	for _, m := range s.openLocked(name) {
		if !m.leasedAt(time.Now()) && (p.Before.IsZero() || m.At.Before(p.Before)) {
			n++
			m.settled = !p.DryRun
		}
	}
	return n, nil
}
