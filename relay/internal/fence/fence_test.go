package fence

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ownership is a fence that is closed after some checks.
type ownership struct{ checks, closesAfter int }

var errLost = errors.New("the shard is lost")

func (o *ownership) Check() error {
	if o.checks++; o.checks > o.closesAfter {
		return errLost
	}
	return nil
}

// sink is a connection that counts what is written to it.
type sink struct {
	net.Conn
	bytes int
}

func (s *sink) Write(p []byte) (int, error) {
	s.bytes += len(p)
	return len(p), nil
}

func (*sink) Close() error { return nil }

// A request that is being written when the shard is lost stays incomplete, however long it is.
func TestConnections_EndALongWrite(t *testing.T) {
	for _, tt := range []struct{ checks, size, want int }{
		{0, 10, 0},
		{1, 10, 10},
		{1, pieceBytes, pieceBytes},
		{1, 1 << 20, pieceBytes},
		{5, 1 << 20, 5 * pieceBytes},
		{1000, 1<<20 + 1, 1<<20 + 1},
	} {
		var to sink
		fence := &ownership{closesAfter: tt.checks + 1} // the dialer checks too
		opts, err := Connections([]kgo.Opt{kgo.Dialer(func(context.Context, string, string) (net.Conn, error) { return &to, nil })}, fence)
		if err != nil {
			t.Fatal(err)
		}
		client, err := kgo.NewClient(opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		dial := client.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
		conn, err := dial(t.Context(), "tcp", "broker:9092")
		if err != nil {
			t.Fatal(err)
		}
		n, err := conn.Write(make([]byte, tt.size))
		if lost := tt.want < tt.size; n != tt.want || to.bytes != tt.want || errors.Is(err, errLost) != lost || (err != nil) != lost {
			t.Errorf("after %d checks %d of %d bytes are written, %d reach the broker, error %v; want %d", tt.checks, n, tt.size, to.bytes, err, tt.want)
		}
		_ = conn.Close()
		if _, err := conn.Write([]byte("a")); tt.want < tt.size && !errors.Is(err, errLost) {
			t.Errorf("a write after that: %v, want that the shard is lost", err)
		}
	}
}
