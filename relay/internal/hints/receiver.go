// Package hints receives the hints of writers, which package outbox/hint sends.
//
// It relies on nothing: a hint that is lost, forged, late or repeated changes only when a reader
// reads. Nothing is published by a hint that the log does not contain.
package hints

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/outbox/hint/datagram"
)

const (
	// maxSenders is the maximum number of writers whose last datagram is stored.
	maxSenders = 4096
	// maxDatagrams is the rate limit of datagrams per second over all senders.
	maxDatagrams = 20_000
	// maxTokensPerSecond is the rate limit of tokens per second.
	maxTokensPerSecond = 100_000
	// maxAge is the maximum difference between a datagram's time and the relay's clock.
	maxAge = 5 * time.Second
)

// result is the outcome of a received datagram.
type result uint8

const (
	accepted  result = iota
	malformed        // not a datagram of this version
	forged           // not signed with the key
	stale            // too old or too new
	replayed         // its number or a later one was received before
	limited          // above the rate limit
)

var results = [...]string{accepted: "accepted", malformed: "malformed", forged: "forged", stale: "stale", replayed: "replayed", limited: "limited"}

// Receiver receives hints.
type Receiver struct {
	codec     *datagram.Codec
	take      func(tokens []int64)
	datagrams *rate.Limiter
	tokens    *rate.Limiter
	senders   map[uint64]last
	counts    [len(results)]prometheus.Counter
	buffer    []int64
}

// last is the newest datagram of a sender.
type last struct {
	number uint64
	at     time.Time
}

// NewReceiver returns a Receiver that calls take with the tokens of one datagram at a
// time; take must not keep the slice. The error is datagram.ErrKey.
func NewReceiver(key []byte, reg prometheus.Registerer, take func(tokens []int64)) (*Receiver, error) {
	c, err := datagram.New(key)
	if err != nil {
		return nil, err
	}
	r := &Receiver{
		codec: c, take: take, senders: make(map[uint64]last),
		datagrams: rate.NewLimiter(maxDatagrams, maxDatagrams/10), tokens: rate.NewLimiter(maxTokensPerSecond, maxTokensPerSecond/10),
	}
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbox_relay_hint_datagrams_total", Help: "Received datagrams with hints from writers, by result.",
	}, []string{"result"})
	for i, name := range results {
		r.counts[i] = counts.WithLabelValues(name)
	}
	if reg != nil {
		reg.MustRegister(counts)
	}
	return r, nil
}

// Run receives hints until ctx ends. It does not close conn, but leaves it with a read
// deadline in the past.
func (r *Receiver) Run(ctx context.Context, conn net.PacketConn) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = conn.SetReadDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-ended // a later deadline would end the reads of the next Run
		}
	}()
	b := make([]byte, 2048)
	for {
		n, _, err := conn.ReadFrom(b)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("receive hints: %w", err)
		}
		if err != nil {
			continue // such as ICMP port unreachable; the socket stays usable
		}
		r.counts[r.receive(b[:n], time.Now())].Inc()
	}
}

// receive checks a datagram and passes on its tokens.
func (r *Receiver) receive(b []byte, now time.Time) result {
	if !r.datagrams.AllowN(now, 1) {
		return limited
	}
	h, tokens, err := r.codec.Parse(b, r.buffer[:0])
	r.buffer = tokens
	switch err {
	case nil:
	case datagram.ErrForged: //nolint:errorlint // it is never wrapped
		return forged
	default:
		return malformed
	}
	if age := now.Sub(h.At); age > maxAge || age < -maxAge {
		return stale
	}
	before, known := r.senders[h.Sender]
	if known && h.Number <= before.number {
		return replayed
	}
	if !known && !r.room(now) || !r.tokens.AllowN(now, len(tokens)) {
		return limited
	}
	r.senders[h.Sender] = last{h.Number, h.At}
	r.take(tokens)
	return accepted
}

// room reports whether a sender can be added. It drops senders whose last datagram is
// stale, since their replayed datagrams would be stale too.
func (r *Receiver) room(now time.Time) bool {
	if len(r.senders) < maxSenders {
		return true
	}
	for id, l := range r.senders {
		if now.Sub(l.at) > maxAge {
			delete(r.senders, id)
		}
	}
	return len(r.senders) < maxSenders
}
