package brokerstate

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// link is a client's way to a broker. It can lose the answers, and lead to
// another broker from then on.
type link struct {
	mu    sync.Mutex
	net   *kfake.VirtualNetwork
	conns []*linked
}

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	to := l.net
	l.mu.Unlock()
	c, err := to.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	way := &linked{Conn: c}
	l.conns = append(l.conns, way)
	return way, nil
}

// mute loses all responses on existing connections, including responses read late.
func (l *link) mute() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.muted.Store(true)
	}
}

// move connects to another broker and breaks existing connections.
func (l *link) move(to *kfake.VirtualNetwork) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.net = to
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

type linked struct {
	net.Conn
	muted atomic.Bool // for good
}

func (c *linked) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.muted.Load() {
			return n, err
		}
	}
}

// A client of franz-go has a record on its way when the broker is killed, and
// sends it again when the broker is back.
func TestRecover_ARecordInFlightAtTheKill(t *testing.T) {
	t.Parallel()
	b := start(t, filepath.Join(t.TempDir(), "kafka"))
	way := &link{net: b.net}
	producer := b.newClient(kgo.Dialer(way.dial), kgo.DefaultProduceTopic(topic), kgo.MetadataMinAge(10*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }))
	produce := func() *kgo.Record {
		t.Helper()
		r, err := producer.ProduceSync(t.Context(), kgo.StringRecord("order")).First()
		if err != nil {
			t.Fatalf("produce: %v", err)
		}
		return r
	}
	produce()
	way.mute()
	type answer struct {
		offset int64
		err    error
	}
	answered := make(chan answer, 1)
	producer.Produce(t.Context(), kgo.StringRecord("order"), func(r *kgo.Record, err error) { answered <- answer{r.Offset, err} })
	for b.end() < 2 {
		if t.Context().Err() != nil {
			t.Fatal("the record never came")
		}
	}
	again := b.restartKilled(1)
	way.move(again.net)
	if a := <-answered; a.err != nil || a.offset != 1 {
		t.Errorf("the record in flight is at offset %d, %v, want 1, nil", a.offset, a.err)
	}
	again.wantEnd(2)
	if r := produce(); r.Offset != 2 {
		t.Errorf("the next record is at offset %d, want 2", r.Offset)
	}
}
