package hint

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/hint/datagram"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// MinKey is the minimum length of SenderConfig.Key in bytes.
const MinKey = datagram.MinKey

// ErrKey is the error of a key that is too short.
var ErrKey = datagram.ErrKey

const (
	// gatherToken is for how long hints are batched after a datagram was sent, for each of its
	// tokens, up to gatherMost: a writer of few events delays no hint, and one of many sends
	// at most a thousand datagrams per second.
	gatherToken = 200 * time.Microsecond
	gatherMost  = time.Millisecond
	// maxWaiting is the maximum number of queued hints; more are dropped.
	maxWaiting = 10_000
	// resolveEvery is the interval between name resolutions.
	resolveEvery = 15 * time.Second
)

// SenderConfig configures a Sender.
type SenderConfig struct {
	// Addrs contains the relays, host:port. A name represents all its addresses and is
	// resolved every 15 s, so one name may represent all relays. Required.
	Addrs []string
	// Key is the key shared with the relays, at least MinKey bytes. Required.
	Key []byte
	// Table is the outbox table of the events, whose token is a hint. The zero value means
	// outbox.DefaultTable.
	Table outbox.Table
	// Conn is the socket for hints; Close closes it. Nil means a new UDP socket.
	Conn net.PacketConn
	// Logger receives one warning per address that cannot be resolved. Nil discards it.
	Logger *slog.Logger
}

// Sender sends hints. Its methods are safe for concurrent use.
type Sender struct {
	cfg    SenderConfig
	codec  *datagram.Codec
	conn   net.PacketConn
	sender uint64
	log    *slog.Logger
	wake   chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
	lost   map[string]bool // unresolved addresses, logged once

	mu      sync.Mutex
	waiting []int64
}

// NewSender returns a Sender that runs until Close. It returns ErrKey or an error for an
// invalid address; names need not exist yet.
func NewSender(cfg SenderConfig) (*Sender, error) {
	c, err := datagram.New(cfg.Key)
	if err != nil {
		return nil, err
	}
	if len(cfg.Addrs) == 0 {
		return nil, errors.New("hint: no addresses")
	}
	for _, a := range cfg.Addrs {
		_, port, err := net.SplitHostPort(a)
		if err != nil {
			return nil, fmt.Errorf("hint: address %q: %w", a, err)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("hint: address %q has no port number", a)
		}
	}
	if cfg.Conn == nil {
		if cfg.Conn, err = net.ListenUDP("udp", nil); err != nil {
			return nil, fmt.Errorf("hint: %w", err)
		}
	}
	if cfg.Table.Name() == "" {
		cfg.Table = outbox.DefaultTable
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	ctx, cancel := context.WithCancel(context.Background())
	s := &Sender{
		cfg: cfg, codec: c, conn: cfg.Conn, sender: binary.BigEndian.Uint64(id[:]), log: cfg.Logger,
		wake: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
		lost: make(map[string]bool),
	}
	go s.run(ctx)
	return s, nil
}

// Committed sends a hint for an event of the aggregate that was just stored. It never
// blocks, and the hint may be lost. A Sender that NewSender has not made, nil too, loses all.
func (s *Sender) Committed(aggregate outbox.ID) {
	if s == nil || s.conn == nil {
		return
	}
	token := rows.Token(s.cfg.Table, aggregate)
	s.mu.Lock()
	if len(s.waiting) < maxWaiting {
		s.waiting = append(s.waiting, token)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Close stops the sender and drops queued hints.
func (s *Sender) Close() error {
	if s == nil || s.conn == nil {
		return nil
	}
	s.cancel()
	<-s.done
	return s.conn.Close()
}

func (s *Sender) run(ctx context.Context) {
	defer close(s.done)
	relays := s.resolve(ctx)
	again := time.NewTicker(resolveEvery)
	defer again.Stop()
	found := make(chan []netip.AddrPort, 1)
	looking := false
	var number uint64
	var tokens []int64
	var b []byte
	for {
		select {
		case <-ctx.Done():
			return
		case relays = <-found:
			looking = false
			continue
		case <-again.C:
			if !looking {
				looking = true
				go func() { found <- s.resolve(ctx) }() // a slow name server must not delay hints
			}
			continue
		case <-s.wake:
		}
		s.mu.Lock()
		tokens, s.waiting = s.waiting, tokens[:0]
		s.mu.Unlock()
		for rest := tokens; len(rest) > 0; {
			n := min(len(rest), datagram.MaxTokens)
			number++
			b = s.codec.Append(b[:0], datagram.Header{Sender: s.sender, Number: number, At: time.Now()}, rest[:n])
			for _, r := range relays {
				s.send(b, r)
			}
			rest = rest[n:]
		}
		// Batch the hints that follow.
		select {
		case <-time.After(min(time.Duration(len(tokens))*gatherToken, gatherMost)):
		case <-ctx.Done():
			return
		}
	}
}

// send sends a datagram and ignores errors.
func (s *Sender) send(b []byte, to netip.AddrPort) {
	if udp, ok := s.conn.(*net.UDPConn); ok {
		_, _ = udp.WriteToUDPAddrPort(b, to) // without an allocation
		return
	}
	_, _ = s.conn.WriteTo(b, net.UDPAddrFromAddrPort(to))
}

// resolve returns the addresses of the relays. Not safe for concurrent use.
func (s *Sender) resolve(ctx context.Context) []netip.AddrPort {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var out []netip.AddrPort
	for _, a := range s.cfg.Addrs {
		host, port, _ := net.SplitHostPort(a)
		n, _ := strconv.ParseUint(port, 10, 16) // checked by NewSender
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil && !s.lost[a] && !errors.Is(err, context.Canceled) {
			s.log.Warn("failed to resolve relay address; hints are not sent", "addr", a, "err", err)
		}
		s.lost[a] = err != nil
		for _, ip := range ips {
			out = append(out, netip.AddrPortFrom(ip.Unmap(), uint16(n)))
		}
	}
	return out
}
