package testkit

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// produceFaults are the faults of the broker's produce requests. The broker itself injects the
// faults that it answers with an error; the others are faults of its connections.
type produceFaults struct {
	broker *kfake.Cluster

	mu     sync.Mutex
	faults []*produceFault
}

// produceFault is a fault of connections.
type produceFault struct {
	Fault
	rnd  *rand.Rand
	hits int
}

func newProduceFaults() *produceFaults { return new(produceFaults) }

func (p *produceFaults) add(f Fault, seed uint64) *Injected {
	rnd := rand.New(rand.NewPCG(seed, 0))
	if f.Effect == Refuse {
		count := -1
		if f.Times > 0 {
			count = f.Times
		}
		h := p.broker.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Topic: f.On, Count: count, Err: kerr.NotLeaderForPartition,
			When: func(kmsg.Request) bool { return happens(rnd, f.Chance) },
		})
		return &Injected{hits: func() int { return int(h.Hits()) }, remove: h.Remove}
	}
	one := &produceFault{Fault: f, rnd: rnd}
	p.mu.Lock()
	p.faults = append(p.faults, one)
	p.mu.Unlock()
	return &Injected{
		hits: func() int { p.mu.Lock(); defer p.mu.Unlock(); return one.hits },
		remove: func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.faults = slices.DeleteFunc(p.faults, func(f *produceFault) bool { return f == one })
		},
	}
}

func happens(rnd *rand.Rand, chance float64) bool { return chance == 0 || rnd.Float64() < chance }

// next returns the fault of the next produce request; ok is false if it has none.
func (p *produceFaults) next() (f Fault, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if (f.Times == 0 || f.hits < f.Times) && happens(f.rnd, f.Chance) {
			f.hits++
			return f.Fault, true
		}
	}
	return Fault{}, false
}

// listen returns a listener whose connections have the faults.
func (p *produceFaults) listen(l net.Listener) net.Listener { return &faultListener{l, p} }

type faultListener struct {
	net.Listener
	faults *produceFaults
}

// Accept accepts a connection.
func (l *faultListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &faultConn{Conn: c, faults: l.faults, lost: make(map[uint32]bool)}, nil
}

// requestHead is the part of a request that identifies it: its size, key, version and
// correlation id.
const requestHead = 12

// faultConn is the broker's end of a connection. The broker reads the size of a request, then
// the request, and writes a response at once.
type faultConn struct {
	net.Conn
	faults *produceFaults

	head []byte // of the request in progress
	left int    // its bytes that have not been read, beyond head

	mu   sync.Mutex
	lost map[uint32]bool // correlation ids of the requests whose answers are lost
}

// Read reads requests.
func (c *faultConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for rest := b[:n]; len(rest) > 0; {
		if c.left > 0 {
			skip := min(c.left, len(rest))
			c.left, rest = c.left-skip, rest[skip:]
			continue
		}
		take := min(requestHead-len(c.head), len(rest))
		c.head, rest = append(c.head, rest[:take]...), rest[take:]
		if len(c.head) < requestHead {
			break
		}
		if !c.begin() {
			_ = c.Close()
			return 0, io.EOF
		}
		c.left, c.head = int(binary.BigEndian.Uint32(c.head))+4-requestHead, c.head[:0]
	}
	return n, err
}

// begin handles the head of a request; false ends the connection.
func (c *faultConn) begin() bool {
	if binary.BigEndian.Uint16(c.head[4:]) != uint16(kmsg.Produce) {
		return true
	}
	f, ok := c.faults.next()
	switch {
	case !ok:
	case f.Effect == LoseRequest:
		return false
	case f.Effect == LoseAnswer:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lost[binary.BigEndian.Uint32(c.head[8:])] = true
	case f.Effect == Delay:
		time.Sleep(f.Delay)
	}
	return true
}

// Write writes a response unless it is lost.
func (c *faultConn) Write(b []byte) (int, error) {
	if len(b) >= 8 {
		c.mu.Lock()
		lost := c.lost[binary.BigEndian.Uint32(b[4:])]
		c.mu.Unlock()
		if lost {
			_ = c.Close()
			return 0, net.ErrClosed
		}
	}
	return c.Conn.Write(b)
}
