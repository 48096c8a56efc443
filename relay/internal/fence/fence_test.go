package fence

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/relay/failure"
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

// close closes the fence.
func (o *ownership) close() { o.closesAfter = 0 }

// sink is a connection that counts the bytes written to it, and fails with err.
type sink struct {
	net.Conn
	bytes int
	err   error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 1, s.err
	}
	s.bytes += len(p)
	return len(p), nil
}

func (s *sink) Close() error { return s.err }

// dialThrough dials to through the fence. dialErr is the error of the dialer below it.
func dialThrough(t *testing.T, fence Fence, to net.Conn, dialErr error) (conn net.Conn, dialed bool, err error) {
	t.Helper()
	opts, err := Connections([]kgo.Opt{kgo.Dialer(func(context.Context, string, string) (net.Conn, error) {
		dialed = true
		return to, dialErr
	})}, fence)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	dial := client.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
	conn, err = dial(t.Context(), "tcp", "broker:9092")
	return conn, dialed, err
}

// dialFenced dials to through a fence that is open.
func dialFenced(t *testing.T, fence Fence, to net.Conn) net.Conn {
	t.Helper()
	conn, _, err := dialThrough(t, fence, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

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
		conn := dialFenced(t, &ownership{closesAfter: tt.checks + 1}, &to) // the dialer checks too
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

// Writes to the database are refused with an error that stops the relay without a retry.
func TestCheck_RefusesWrites(t *testing.T) {
	t.Parallel()
	if err := Check(nil); err != nil {
		t.Errorf("Check(nil) = %v, want no fence to allow writes", err)
	}
	if err := Check(&ownership{closesAfter: 1}); err != nil {
		t.Errorf("Check() = %v while the shard is owned", err)
	}
	err := Check(&ownership{})
	for _, want := range []error{ErrWrite, errLost, failure.ErrStopping} {
		if !errors.Is(err, want) {
			t.Errorf("Check() = %v, want it to wrap %v", err, want)
		}
	}
}

// No connection begins behind the fence, and errors of the dialer and the connection arrive.
func TestConnections_ReturnErrors(t *testing.T) {
	t.Parallel()
	if _, err := Connections([]kgo.Opt{kgo.RequiredAcks(kgo.NoAck())}, &ownership{}); err == nil {
		t.Error("Connections() accepts options that the client refuses")
	}
	if _, dialed, err := dialThrough(t, &ownership{}, &sink{}, nil); dialed || !errors.Is(err, errFenced) || !errors.Is(err, errLost) {
		t.Errorf("behind the fence the dialer is called = %v, error %v, want that the shard is lost", dialed, err)
	}
	errBroken := errors.New("the broker is away")
	if conn, _, err := dialThrough(t, &ownership{closesAfter: 9}, nil, errBroken); conn != nil || !errors.Is(err, errBroken) {
		t.Errorf("dial = %v, %v, want the dialer's error", conn, err)
	}
	conn := dialFenced(t, &ownership{closesAfter: 9}, &sink{err: errBroken})
	if n, err := conn.Write(make([]byte, 10)); n != 1 || !errors.Is(err, errBroken) {
		t.Errorf("Write() = %d, %v, want 1 and the connection's error", n, err)
	}
	if err := conn.Close(); !errors.Is(err, errBroken) {
		t.Errorf("Close() = %v, want the connection's error", err)
	}
}

// secured is a connection like one of TLS.
type secured struct{ net.Conn }

func (s secured) NetConn() net.Conn { return s.Conn }

// connectTCP returns both ends of a TCP connection.
func connectTCP(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server
}

// The kernel drops unsent data once the shard is lost: the broker sees a reset connection, not its
// end. That includes connections with TLS.
func TestConnections_AreReset(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		secure, lost bool
	}{
		{"owned", false, false},
		{"lost", false, true},
		{"lost with TLS", true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client, server := connectTCP(t)
			if tt.secure {
				client = secured{client}
			}
			fence := &ownership{closesAfter: 9}
			conn := dialFenced(t, fence, client)
			if tt.lost {
				fence.close()
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := server.Read(make([]byte, 1)); errors.Is(err, io.EOF) == tt.lost {
				t.Errorf("the broker reads %v, want a reset = %v", err, tt.lost)
			}
		})
	}
}

// A refused write also ends the writes of other goroutines to the same connection.
func TestConnections_EndWritesInProgress(t *testing.T) {
	t.Parallel()
	client, _ := connectTCP(t)
	fence := &ownership{closesAfter: 9}
	conn := dialFenced(t, fence, client)
	fence.close()
	if _, err := conn.Write([]byte("a")); !errors.Is(err, errLost) {
		t.Fatalf("Write() = %v, want that the shard is lost", err)
	}
	if _, err := client.Write([]byte("b")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write below the fence: %v, want that its deadline has passed", err)
	}
}
