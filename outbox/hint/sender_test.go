package hint

import (
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/hint/datagram"
)

var testKey = []byte("0123456789abcdef")

// sentAt is a socket that records when datagrams were sent and how long they are.
type sentAt struct {
	net.PacketConn
	began time.Time
	at    []time.Duration
	sizes []int
}

func (c *sentAt) WriteTo(b []byte, _ net.Addr) (int, error) {
	c.at, c.sizes = append(c.at, time.Since(c.began)), append(c.sizes, (len(b)-datagram.Overhead)/8)
	return len(b), nil
}

func (c *sentAt) Close() error { return nil }

// A hint waits 200 µs for each token of the datagram before it, and at most a millisecond.
func TestSender_WaitsByTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := &sentAt{began: time.Now()}
		s, err := NewSender(SenderConfig{Addrs: []string{"127.0.0.1:1"}, Key: testKey, Conn: conn})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, n := range []int{1, 1, 3, 100, 1} {
			for range n {
				s.Committed(outbox.IDFromInt(1))
			}
			time.Sleep(20 * time.Microsecond)
			synctest.Wait()
		}
		time.Sleep(200 * time.Microsecond)
		synctest.Wait()
		s.Committed(outbox.IDFromInt(1))
		time.Sleep(10 * time.Millisecond)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if want := []int{1, 105, 1}; !slices.Equal(conn.sizes, want) {
			t.Errorf("datagrams of %v tokens, want %v", conn.sizes, want)
		}
		if want := []time.Duration{0, 200 * time.Microsecond, 1200 * time.Microsecond}; !slices.Equal(conn.at, want) {
			t.Errorf("datagrams at %v, want %v", conn.at, want)
		}
	})
}

func TestNewSender_NamesTheProblem(t *testing.T) {
	t.Parallel()
	for _, cfg := range []SenderConfig{
		{Addrs: []string{"127.0.0.1:1"}, Key: []byte("short")},
		{Key: testKey},
		{Addrs: []string{"127.0.0.1"}, Key: testKey},
		{Addrs: []string{"127.0.0.1:http"}, Key: testKey},
	} {
		if s, err := NewSender(cfg); err == nil {
			t.Errorf("NewSender(%+v) succeeded", cfg)
			_ = s.Close()
		}
	}
}
