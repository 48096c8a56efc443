package scyllafake

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// setup starts a node in memory.
func setup(t testing.TB, change ...func(*Config)) *Server {
	t.Helper()
	cfg := Config{Tokens: 4, Seed: seeds.Of(t), Version: "5.1"}
	for _, f := range change {
		f(&cfg)
	}
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// rawClient speaks the protocol frame by frame with an independent codec.
type rawClient struct {
	t      testing.TB
	nc     net.Conn
	codec  frame.Codec
	events []message.Message
	stream int16
}

func dialRaw(t testing.TB, s *Server) *rawClient {
	t.Helper()
	nc, err := s.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(5 * time.Minute))
	return &rawClient{t: t, nc: nc, codec: frame.NewCodec()}
}

// dialStarted dials and sends STARTUP.
func dialStarted(t testing.TB, s *Server) *rawClient {
	t.Helper()
	c := dialRaw(t, s)
	c.send(message.NewStartup())
	if f := c.read(); f.Header.OpCode != primitive.OpCodeReady {
		t.Fatalf("answer to STARTUP: %v", f)
	}
	return c
}

func (c *rawClient) send(m message.Message) int16 {
	c.t.Helper()
	c.stream++
	f := frame.NewFrame(primitive.ProtocolVersion4, c.stream, m)
	var b bytes.Buffer
	if err := c.codec.EncodeFrame(f, &b); err != nil {
		c.t.Fatal(err)
	}
	c.write(b.Bytes())
	return c.stream
}

func (c *rawClient) write(b []byte) {
	c.t.Helper()
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// read returns the next frame.
func (c *rawClient) read() *frame.Frame {
	c.t.Helper()
	f, err := c.codec.DecodeFrame(c.nc)
	if err != nil {
		c.t.Fatalf("read a frame: %v", err)
	}
	return f
}

// do sends a request and returns the answer; events before it are kept.
func (c *rawClient) do(m message.Message) message.Message {
	c.t.Helper()
	id := c.send(m)
	for {
		f := c.read()
		if f.Header.StreamId == -1 {
			c.events = append(c.events, f.Body.Message)
			continue
		}
		if f.Header.StreamId != id {
			c.t.Fatalf("answer on stream %d, want %d", f.Header.StreamId, id)
		}
		return f.Body.Message
	}
}

func (c *rawClient) query(text string) message.Message {
	c.t.Helper()
	return c.do(&message.Query{Query: text, Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne}})
}

// exec runs statements that must not fail.
func (c *rawClient) exec(texts ...string) {
	c.t.Helper()
	for _, text := range texts {
		if e, ok := c.query(text).(message.Error); ok {
			c.t.Fatalf("%s: %v", text, e)
		}
	}
}

// wantError checks that m is an error with this code and text.
func wantError(t testing.TB, doing string, m message.Message, code primitive.ErrorCode, text string) {
	t.Helper()
	e, ok := m.(message.Error)
	if !ok || e.GetErrorCode() != code || e.GetErrorMessage() != text {
		t.Errorf("%s: got %v, want %v %q", doing, m, code, text)
	}
}

// wantClosed checks that the server closes the connection.
func (c *rawClient) wantClosed(doing string) {
	c.t.Helper()
	b := make([]byte, 64)
	n, err := c.nc.Read(b)
	if n > 0 || !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
		c.t.Errorf("%s: read %x, %v; want the end of the connection", doing, b[:n], err)
	}
}
