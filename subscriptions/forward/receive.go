package forward

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// waiter is a request that waits for messages.
type waiter struct {
	request subscriptions.Receive
	until   time.Time
	wake    context.CancelFunc // ends its wait at the local engine
	got     []subscriptions.Message
}

// poll identifies the long polls of which there is one at a time.
type poll struct {
	instance string
	timeout  time.Duration // visibility timeout of the leases
	perKey   int           // maximum of a run
}

// serves reports whether the messages of the poll can be given to a request.
func (p poll) serves(r *subscriptions.Receive) bool {
	return r.VisibilityTimeout == p.timeout && r.MaxPerKey == p.perKey
}

// Receive implements subscriptions.Service.
func (s *Service) Receive(ctx context.Context, name string, r subscriptions.Receive) ([]subscriptions.Message, error) {
	end := time.Now().Add(r.Wait)
	g, peers := s.group(name), s.peers(ctx, name)
	now := r
	now.Wait = 0
	first := g.next(peers)
	if first != nil {
		if out := s.ask(ctx, g, *first, name, now); len(out) > 0 {
			return out, nil
		}
	}
	if len(peers) > 0 {
		if out, err := s.cfg.Local.Receive(ctx, name, now); err != nil || len(out) > 0 {
			return out, err
		}
	}
	if r.Wait == 0 {
		for _, p := range peers {
			if out := s.ask(ctx, g, p, name, now); len(out) > 0 {
				return out, nil
			}
		}
		if len(peers) > 0 {
			return nil, nil
		}
	}
	if r.Wait > 0 {
		defer g.waits(r.Consumer)()
	}
	for {
		left := max(0, time.Until(end))
		r.Wait = min(left, round)
		out, err := s.wait(ctx, g, name, r, peers, end)
		// A caller that has gone is not waited for: each round would end at once.
		if err != nil || len(out) > 0 || left <= round || ctx.Err() != nil {
			return out, err
		}
		peers = s.peers(ctx, name)
	}
}

// next returns the peer whose turn it is to be asked before the local engine; nil if it is
// the turn of the local engine. So a backlog of this instance does not delay the messages
// of its peers.
func (g *group) next(peers []subscriptions.InstanceStatus) *subscriptions.InstanceStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	ready := slices.DeleteFunc(slices.Clone(peers), func(p subscriptions.InstanceStatus) bool { return g.mu.asked[p.Instance].After(now) })
	g.mu.turn++
	if i := g.mu.turn % (len(ready) + 1); i < len(ready) {
		return &ready[i]
	}
	return nil
}

// notBefore records when a peer may be asked before the local engine again.
func (g *group) notBefore(instance string, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.asked[instance] = time.Now().Add(d)
}

func (g *group) penaltyLeft(instance string) (left time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Until(g.mu.asked[instance])
}

// ask receives messages that a peer has now.
func (s *Service) ask(ctx context.Context, g *group, p subscriptions.InstanceStatus, name string, r subscriptions.Receive) []subscriptions.Message {
	autoAck := r.AutoAck
	r.AutoAck = false // an acknowledged message would be lost with the response
	out, err := s.receiveFrom(ctx, p, name, r)
	switch {
	case err != nil:
		s.penalize(ctx, g, p, name, err)
		return nil
	case len(out) == 0:
		g.notBefore(p.Instance, pause)
	}
	return s.acknowledgeMessages(ctx, name, out, autoAck)
}

func (s *Service) penalize(ctx context.Context, g *group, p subscriptions.InstanceStatus, name string, err error) {
	if ctx.Err() != nil {
		return
	}
	g.notBefore(p.Instance, penalty)
	s.cfg.Logger.WarnContext(ctx, "failed to receive from an instance", "subscription", name, "instance", p.Instance, "address", p.Address, "err", err)
}

// acknowledgeMessages acknowledges messages of peers for a request with AutoAck, and returns the
// acknowledged ones.
func (s *Service) acknowledgeMessages(ctx context.Context, name string, messages []subscriptions.Message, autoAck bool) []subscriptions.Message {
	if !autoAck || len(messages) == 0 {
		return messages
	}
	results, err := s.Settle(ctx, name, newActions(subscriptions.ActionAck, messages))
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "failed to acknowledge messages of an instance", "subscription", name, "err", err)
		return nil
	}
	out := messages[:0]
	for i := range messages {
		if results[i].Code == subscriptions.CodeOK {
			messages[i].Receipt, messages[i].LeaseUntil = "", time.Time{}
			out = append(out, messages[i])
		}
	}
	return out
}

func newActions(a subscriptions.Action, messages []subscriptions.Message) []subscriptions.Settle {
	out := make([]subscriptions.Settle, len(messages))
	for i := range messages {
		out[i] = subscriptions.Settle{Action: a, Receipt: messages[i].Receipt}
	}
	return out
}

// wait waits at the local engine and, by the long polls of the subscription, at the peers.
// It returns messages of both if they arrive together.
func (s *Service) wait(ctx context.Context, g *group, name string, r subscriptions.Receive, peers []subscriptions.InstanceStatus, until time.Time) ([]subscriptions.Message, error) {
	if len(peers) == 0 {
		return s.cfg.Local.Receive(ctx, name, r)
	}
	waiting, wake := context.WithCancel(ctx)
	defer wake()
	w := &waiter{request: r, until: until, wake: wake}
	g.mu.Lock()
	g.mu.waiters = append(g.mu.waiters, w)
	for _, p := range peers {
		key := poll{p.Instance, r.VisibilityTimeout, r.MaxPerKey}
		if !g.mu.polling[key] && s.running.Err() == nil {
			g.mu.polling[key] = true
			s.polls.Go(func() { s.poll(g, name, key) })
		}
	}
	g.mu.Unlock()
	local := r
	local.AutoAck = false // a message of a peer ends the request, and an acknowledgement would be lost
	out, err := s.cfg.Local.Receive(waiting, name, local)
	g.mu.Lock()
	g.mu.waiters = slices.DeleteFunc(g.mu.waiters, func(x *waiter) bool { return x == w })
	got := w.got
	g.mu.Unlock()
	if len(got) == 0 {
		if err != nil {
			return nil, err
		}
		return s.acknowledgeMessages(ctx, name, out, r.AutoAck), nil
	}
	if n := r.Max - len(out); len(got) > n { // the peer was too late for some
		s.release(name, got[n:])
		got = got[:n]
	}
	return s.acknowledgeMessages(ctx, name, append(out, got...), r.AutoAck), nil
}

// poll receives from a peer for the requests that wait, until there are none or the peer
// has no recent report.
func (s *Service) poll(g *group, name string, key poll) {
	for {
		peers := s.peers(s.running, name)
		at := slices.IndexFunc(peers, func(p subscriptions.InstanceStatus) bool { return p.Instance == key.instance })
		r, ok := g.demand(key, at >= 0 && s.running.Err() == nil)
		if !ok {
			return
		}
		if left := g.penaltyLeft(key.instance); left > pause {
			sleep(s.running, left)
			continue
		}
		messages, err := s.receiveFrom(s.running, peers[at], name, r)
		if err != nil {
			s.penalize(s.running, g, peers[at], name, err)
			continue
		}
		if rest := g.give(key, messages); len(rest) > 0 {
			s.release(name, rest)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// severalConsumers is the name of the consumers of one long poll, of which any may receive a
// message.
const severalConsumers = "several consumers"

// waits counts a request of a consumer that waits, until done is called.
func (g *group) waits(consumer string) (done func()) {
	count := func(by int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.mu.waiting[consumer] += by; g.mu.waiting[consumer] == 0 {
			delete(g.mu.waiting, consumer)
		}
	}
	count(1)
	return func() { count(-1) }
}

// consumers returns the consumers whose requests wait at this instance, by name.
func (s *Service) consumers(name string) (out []subscriptions.WaitingConsumer) {
	g := s.group(name)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, consumer := range slices.Sorted(maps.Keys(g.mu.waiting)) {
		out = append(out, subscriptions.WaitingConsumer{Consumer: consumer, Instance: s.cfg.Instance, Requests: g.mu.waiting[consumer]})
	}
	return out
}

// demand returns the request for the next long poll. If there is none, or the peer has left,
// the poll must end.
func (g *group) demand(key poll, there bool) (r subscriptions.Receive, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.VisibilityTimeout, r.MaxPerKey = key.timeout, key.perKey
	for _, w := range g.mu.waiters {
		if key.serves(&w.request) {
			r.Max = min(r.Max+w.request.Max, subscriptions.MaxMessages)
			r.Wait = min(max(r.Wait, time.Until(w.until)), round)
			if r.Consumer = cmp.Or(r.Consumer, w.request.Consumer); r.Consumer != w.request.Consumer {
				r.Consumer = severalConsumers
			}
		}
	}
	if r.Max == 0 || !there {
		delete(g.mu.polling, key)
		return r, false
	}
	return r, true
}

// give gives messages to the requests that wait, the oldest first, and returns the rest. Runs
// are not shared: the messages of a key are in one request.
func (g *group) give(key poll, messages []subscriptions.Message) (rest []subscriptions.Message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	given := false
	g.mu.waiters = slices.DeleteFunc(g.mu.waiters, func(w *waiter) bool {
		if len(messages) == 0 || !key.serves(&w.request) || given && key.perKey > 1 {
			return false
		}
		given = true
		n := min(w.request.Max, len(messages))
		w.got, messages = messages[:n:n], messages[n:]
		w.wake()
		return true
	})
	return messages
}

// release returns messages that reached no consumer. If it fails they are delivered again
// once their leases expire.
func (s *Service) release(name string, messages []subscriptions.Message) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.running), s.cfg.Timeout)
	defer cancel()
	if _, err := s.Settle(ctx, name, newActions(subscriptions.ActionRelease, messages)); err != nil {
		s.cfg.Logger.WarnContext(ctx, "failed to deliver messages now", "subscription", name, "messages", len(messages), "err", err)
	}
}

// releaseLocal is release for messages of this instance.
func (s *Service) releaseLocal(name string, messages []subscriptions.Message) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.running), s.cfg.Timeout)
	defer cancel()
	if _, err := s.cfg.Local.Settle(ctx, name, newActions(subscriptions.ActionRelease, messages)); err != nil {
		s.cfg.Logger.WarnContext(ctx, "failed to deliver messages now", "subscription", name, "messages", len(messages), "err", err)
	}
}
