package scyllafake

import (
	"encoding/hex"
	"io"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

const selectKey = "SELECT key FROM system.local"

func raw(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Misuse before STARTUP, as recorded (A3).
func TestConn_FirstMessages(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, tt := range []struct {
		name string
		m    message.Message
		want string
	}{
		{"query", &message.Query{Query: selectKey}, "Unexpected message 7, expecting STARTUP or OPTIONS"},
		{"prepare", &message.Prepare{Query: selectKey}, "Unexpected message 9, expecting STARTUP or OPTIONS"},
		{"register", &message.Register{EventTypes: []primitive.EventType{primitive.EventTypeSchemaChange}}, "Unexpected message 11, expecting STARTUP or OPTIONS"},
		{"auth", &message.AuthResponse{Token: []byte{}}, "Unexpected message 15, expecting STARTUP or OPTIONS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := dialRaw(t, s)
			wantError(t, tt.name, c.do(tt.m), primitive.ErrorCodeProtocolError, tt.want)
			if _, ok := c.do(&message.Options{}).(*message.Supported); !ok {
				t.Error("the connection cannot be used after it")
			}
		})
	}
}

func TestConn_SecondStartup(t *testing.T) {
	t.Parallel()
	c := dialStarted(t, setup(t))
	wantError(t, "second STARTUP", c.do(message.NewStartup()), primitive.ErrorCodeProtocolError,
		"Unexpected message STARTUP, the connection is already initialized")
	if m := c.query(selectKey); m.(*message.RowsResult).Data[0][0] == nil {
		t.Errorf("query after it: %v", m)
	}
}

func TestConn_UnknownCompression(t *testing.T) {
	t.Parallel()
	c := dialRaw(t, setup(t))
	m := message.NewStartup()
	m.Options["COMPRESSION"] = "zstd"
	wantError(t, "STARTUP", c.do(m), primitive.ErrorCodeProtocolError, "Unknown compression algorithm: zstd")
	wantError(t, "query after it", c.query(selectKey), primitive.ErrorCodeProtocolError, "Unexpected message 7, expecting STARTUP or OPTIONS")
}

// Frames that a connection survives, and frames that end it; request and response as
// recorded (A2, A3).
func TestConn_RawFrames(t *testing.T) {
	t.Parallel()
	s := setup(t)
	tests := []struct {
		name    string
		first   bool // without STARTUP
		request string
		code    primitive.ErrorCode
		want    string
		stream  int16
		closed  bool
	}{
		{"version 5", true, "05 00 0001 05 00000000", primitive.ErrorCodeProtocolError, "Invalid or unsupported protocol version: 5", 0, true},
		{"version 0x42", true, "42 00 0001 05 00000000", primitive.ErrorCodeProtocolError, "Invalid or unsupported protocol version: 66", 0, true},
		{"unknown opcode", false, "04 00 0007 7f 00000000", primitive.ErrorCodeProtocolError, "Unknown opcode 127", 7, false},
		{"READY from a client", false, "04 00 0007 02 00000000", primitive.ErrorCodeProtocolError, "Unknown opcode 2", 7, false},
		{"body ends early", false, "04 00 0008 07 00000002 0000", primitive.ErrorCodeProtocolError, "truncated frame: expected 4 bytes, length is 2", 8, false},
		{"empty query", false, "04 00 0009 07 00000004 00000000", primitive.ErrorCodeProtocolError, "truncated frame: expected 2 bytes, length is 0", 9, false},
		{"unknown flags", false, "04 00 0004 07 0000000b 00000000 0001 ff 0000 0000", primitive.ErrorCodeServerError, "Bit mask contains invalid enumeration indices.", 4, false},
		{"compressed without agreement", false, "04 01 0005 07 00000004 deadbeef", primitive.ErrorCodeProtocolError, "Unknown compression algorithm", 0, true},
		{"large first frame", true, "04 00 0003 05 000186a1", primitive.ErrorCodeProtocolError, "Initial message size too large (100001), rejecting as invalid", 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := dialRaw(t, s)
			if !tt.first {
				c = dialStarted(t, s)
			}
			c.write(raw(t, tt.request))
			f := c.read()
			if f.Header.StreamId != tt.stream {
				t.Errorf("answer on stream %d, want %d", f.Header.StreamId, tt.stream)
			}
			wantError(t, tt.name, f.Body.Message, tt.code, tt.want)
			if tt.closed {
				c.wantClosed(tt.name)
			} else if _, ok := c.query(selectKey).(*message.RowsResult); !ok {
				t.Error("the connection cannot be used after it")
			}
		})
	}
}

func TestConn_StreamsAreEchoed(t *testing.T) {
	t.Parallel()
	c := dialRaw(t, setup(t))
	for _, stream := range []string{"0000", "7fff", "ff00"} {
		c.write(raw(t, "04 00 "+stream+" 05 00000000"))
		head := make([]byte, 9)
		if _, err := io.ReadFull(c.nc, head); err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(head[2:4]); got != stream {
			t.Errorf("stream %s was answered on %s", stream, got)
		}
		body := make([]byte, int(head[7])<<8|int(head[8]))
		if _, err := io.ReadFull(c.nc, body); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConn_Supported(t *testing.T) {
	t.Parallel()
	s := setup(t, func(c *Config) { c.Shards = 2 })
	seen := map[string]bool{}
	for range 2 {
		c := dialRaw(t, s)
		got := c.do(&message.Options{}).(*message.Supported).Options
		for k, want := range map[string]string{
			"CQL_VERSION": "3.3.1", "SCYLLA_NR_SHARDS": "2", "SCYLLA_SHARDING_IGNORE_MSB": "12",
			"SCYLLA_SHARDING_ALGORITHM": "biased-token-round-robin", "SCYLLA_PARTITIONER": "org.apache.cassandra.dht.Murmur3Partitioner",
			"SCYLLA_LWT_ADD_METADATA_MARK": "LWT_OPTIMIZATION_META_BIT_MASK=2147483648", "SCYLLA_RATE_LIMIT_ERROR": "ERROR_CODE=61440",
		} {
			if len(got[k]) != 1 || got[k][0] != want {
				t.Errorf("%s = %v, want %s", k, got[k], want)
			}
		}
		if _, ok := got["TABLETS_ROUTING_V1"]; ok {
			t.Error("5.1 offers TABLETS_ROUTING_V1")
		}
		seen[got["SCYLLA_SHARD"][0]] = true
	}
	if len(seen) != 2 {
		t.Errorf("two connections went to the shards %v, want both", seen)
	}
}

func TestConn_UnsupportedFeatures(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, name := range []string{"lz4", "snappy"} {
		m := message.NewStartup()
		m.Options["COMPRESSION"] = name
		wantError(t, name, dialRaw(t, s).do(m), primitive.ErrorCodeInvalid, "scyllafake does not support the compression "+name)
	}
	q := &message.Query{Query: "SELECT key FROM system.local WHERE key = :k", Options: &message.QueryOptions{
		NamedValues: map[string]*primitive.Value{"k": primitive.NewValue([]byte("local"))},
	}}
	wantError(t, q.Query, dialStarted(t, s).do(q), primitive.ErrorCodeInvalid, "scyllafake does not support values bound by name")
}

func TestConn_Authentication(t *testing.T) {
	t.Parallel()
	s := setup(t, func(c *Config) { c.Users = map[string]string{"outbox": "secret"} })
	for token, ok := range map[string]bool{"\x00outbox\x00secret": true, "\x00outbox\x00wrong": false, "\x00nobody\x00": false, "junk": false} {
		c := dialRaw(t, s)
		if _, is := c.do(message.NewStartup()).(*message.Authenticate); !is {
			t.Fatal("STARTUP was not answered with AUTHENTICATE")
		}
		_, success := c.do(&message.AuthResponse{Token: []byte(token)}).(*message.AuthSuccess)
		if success != ok {
			t.Errorf("token %q: success %v, want %v", token, success, ok)
		}
		if _, rows := c.query(selectKey).(*message.RowsResult); rows != ok {
			t.Errorf("token %q: query answered %v, want %v", token, rows, ok)
		}
	}
}
