package hints

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/hint"
	"github.com/scylla-outbox/scylla-outbox/outbox/hint/datagram"
)

var testKey = []byte("0123456789abcdef")

func TestReceiver_TakesOnlyWhatIsInOrder(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c, err := datagram.New(testKey)
	if err != nil {
		t.Fatal(err)
	}
	other, err := datagram.New([]byte("another key, as long"))
	if err != nil {
		t.Fatal(err)
	}
	make1 := func(c *datagram.Codec, number uint64, at time.Time, tokens ...int64) []byte {
		return c.Append(nil, datagram.Header{Sender: 7, Number: number, At: at}, tokens)
	}
	good := make1(c, 5, now, 1, -2)
	var taken []int64
	r, err := NewReceiver(testKey, nil, func(tokens []int64) { taken = append(taken, tokens...) })
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want result
	}{
		{"empty", nil, malformed},
		{"short", good[:28], malformed},
		{"no tokens", make1(c, 9, now), malformed},
		{"another version", append([]byte("OBH2"), good[4:]...), malformed},
		{"another key", make1(other, 1, now, 3), forged},
		{"altered", append(append(slices.Clone(good[:30]), 1), good[31:]...), forged},
		{"old", make1(c, 1, now.Add(-2*maxAge), 3), stale},
		{"from the future", make1(c, 1, now.Add(2*maxAge), 3), stale},
		{"good", good, accepted},
		{"again", good, replayed},
		{"overtaken", make1(c, 4, now, 3), replayed},
		{"next", make1(c, 6, now, 4), accepted},
	} {
		if got := r.receive(tt.b, now); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, results[got], results[tt.want])
		}
	}
	if want := []int64{1, -2, 4}; !slices.Equal(taken, want) {
		t.Errorf("took %v, want %v", taken, want)
	}
}

func TestReceiver_IsBounded(t *testing.T) {
	t.Parallel()
	c, err := datagram.New(testKey)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	r, err := NewReceiver(testKey, nil, func(tokens []int64) { n += len(tokens) })
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	counts := make(map[result]int)
	tokens := make([]int64, 100)
	for i := range 50_000 {
		// One second of datagrams at the rate limit, each from another sender.
		at := now.Add(time.Duration(i) * 20 * time.Microsecond)
		counts[r.receive(c.Append(nil, datagram.Header{Sender: uint64(i), Number: 1, At: at}, tokens), at)]++
	}
	if n > 2*maxTokensPerSecond || len(r.senders) > maxSenders || counts[limited] == 0 {
		t.Errorf("took %d tokens of %d senders, %v", n, len(r.senders), counts)
	}
	// After a minute the limits allow more.
	at := now.Add(time.Minute)
	if got := r.receive(c.Append(nil, datagram.Header{Sender: 1 << 40, Number: 1, At: at}, tokens), at); got != accepted {
		t.Errorf("a minute later: %s, want accepted", results[got])
	}
}

// slowConn is a socket with slow deadlines that always has a datagram.
type slowConn struct {
	net.PacketConn
	deadline time.Time
}

func (c *slowConn) SetReadDeadline(t time.Time) error {
	time.Sleep(time.Second)
	c.deadline = t
	return nil
}

func (c *slowConn) ReadFrom([]byte) (int, net.Addr, error) {
	time.Sleep(time.Millisecond)
	return 1, nil, nil
}

// Run sets no deadline after its return: it would end the reads of the following Run.
func TestReceiver_LeavesTheSocketAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, err := NewReceiver(testKey, nil, func([]int64) {})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var conn slowConn
		if err := r.Run(ctx, &conn); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run() error = %v, want the context's", err)
		}
		conn.deadline = time.Time{} // the next Run begins
		time.Sleep(time.Minute)
		if !conn.deadline.IsZero() {
			t.Error("the next Run has a read deadline in the past")
		}
	})
}

func TestSender_ReachesAReceiver(t *testing.T) {
	t.Parallel()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got := make(chan int64, 100_000)
	r, err := NewReceiver(testKey, nil, func(tokens []int64) {
		for _, t := range tokens {
			got <- t
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, conn) }()
	s, err := hint.NewSender(hint.SenderConfig{Addrs: []string{conn.LocalAddr().String()}, Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[int64]outbox.ID)
	for i := range 500 {
		id := outbox.IDFromUUID(gocql.UUID{1, byte(i), byte(i >> 8)})
		if i%2 == 0 {
			id = outbox.IDFromText(fmt.Sprint("Käufer/", i))
		}
		// The partitioner hashes the text.
		want[catalog.Murmur3Token([]byte(id.String()))] = id
		s.Committed(id)
	}
	// Hints that are lost or late, as on a busy machine, are sent again.
	again := time.NewTicker(500 * time.Millisecond)
	defer again.Stop()
	for end := time.After(time.Minute); len(want) > 0; {
		select {
		case token := <-got:
			delete(want, token)
		case <-again.C:
			for _, id := range want {
				s.Committed(id)
			}
		case <-end:
			t.Fatalf("%d of 500 tokens were not received", len(want))
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close() error = %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run() error = %v, want the context's", err)
	}
}

func FuzzReceiver(f *testing.F) {
	c, err := datagram.New(testKey)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(c.Append(nil, datagram.Header{Sender: 1, Number: 2, At: time.Now()}, []int64{1, 2, 3}))
	f.Add([]byte("OBH1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, tokens, err := c.Parse(b, nil)
		if err == nil && len(tokens)*8+datagram.Overhead != len(b) {
			t.Errorf("%d tokens in %d bytes", len(tokens), len(b))
		}
	})
}

func BenchmarkReceiver(b *testing.B) {
	c, _ := datagram.New(testKey)
	r, _ := NewReceiver(testKey, nil, func([]int64) {})
	at := time.Now()
	b1 := c.Append(nil, datagram.Header{Sender: 1, Number: 2, At: at}, []int64{1, 2, 3})
	b.ReportAllocs()
	for b.Loop() {
		r.codec.Parse(b1, r.buffer[:0])
	}
}
