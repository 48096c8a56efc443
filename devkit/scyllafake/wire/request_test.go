package wire

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// encodeRequest is a request as an independent codec writes it.
func encodeRequest(t testing.TB, version primitive.ProtocolVersion, m message.Message) (Header, []byte) {
	t.Helper()
	var b bytes.Buffer
	if err := frame.NewCodec().EncodeFrame(frame.NewFrame(version, 7, m), &b); err != nil {
		t.Fatal(err)
	}
	h := ParseHeader(b.Bytes())
	body := b.Bytes()[HeaderSize:]
	if int(h.Length) != len(body) || h.Stream != 7 || h.Version != byte(version) {
		t.Fatalf("header %+v with a body of %d bytes", h, len(body))
	}
	return h, body
}

func ptr[T any](v T) *T { return &v }

func TestReadQuery(t *testing.T) {
	t.Parallel()
	values := []*primitive.Value{primitive.NewValue([]byte{1, 2}), primitive.NewValue([]byte{}), primitive.NewNullValue(), primitive.NewUnsetValue()}
	bound := []engine.Value{{Bytes: []byte{1, 2}}, {Bytes: []byte{}}, {}, {Unset: true}}
	tests := []struct {
		name string
		in   *message.QueryOptions
		want Options
	}{
		{"bare", &message.QueryOptions{Consistency: primitive.ConsistencyLevelQuorum}, Options{Params: engine.Params{Consistency: engine.Quorum}}},
		{
			"all", &message.QueryOptions{
				Consistency: primitive.ConsistencyLevelOne, PositionalValues: values, SkipMetadata: true, PageSize: 5000,
				PagingState: []byte("state"), SerialConsistency: ptr(primitive.ConsistencyLevelLocalSerial), DefaultTimestamp: ptr(int64(-5)),
			},
			Options{SkipMetadata: true, Params: engine.Params{
				Consistency: engine.One, Values: bound, PageSize: 5000, PagingState: []byte("state"),
				SerialConsistency: engine.LocalSerial, Timestamp: -5, HasTimestamp: true,
			}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, b := encodeRequest(t, primitive.ProtocolVersion4, &message.Query{Query: "SELECT 1", Options: tt.in})
			q, err := ReadQuery(h, b)
			if err != nil {
				t.Fatal(err)
			}
			if q.Text != "SELECT 1" || !reflect.DeepEqual(q.Options, tt.want) {
				t.Errorf("ReadQuery = %q %+v, want %+v", q.Text, q.Options, tt.want)
			}
			h, b = encodeRequest(t, primitive.ProtocolVersion4, &message.Execute{QueryId: []byte{9, 8}, Options: tt.in})
			x, err := ReadExecute(h, b, false)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(x.ID, []byte{9, 8}) || !reflect.DeepEqual(x.Options, tt.want) {
				t.Errorf("ReadExecute = %x %+v, want %+v", x.ID, x.Options, tt.want)
			}
		})
	}
}

func TestReadBatch(t *testing.T) {
	t.Parallel()
	h, b := encodeRequest(t, primitive.ProtocolVersion4, &message.Batch{
		Type: primitive.BatchTypeUnlogged,
		Children: []*message.BatchChild{
			{Query: "INSERT"},
			{Id: []byte{1}, Values: []*primitive.Value{primitive.NewValue([]byte{3}), primitive.NewUnsetValue()}},
		},
		Consistency: primitive.ConsistencyLevelQuorum, DefaultTimestamp: ptr(int64(12)),
	})
	got, err := ReadBatch(h, b)
	if err != nil {
		t.Fatal(err)
	}
	want := Batch{
		Kind: 1,
		Items: []BatchItem{
			{Text: "INSERT"},
			{ID: []byte{1}, Values: []engine.Value{{Bytes: []byte{3}}, {Unset: true}}},
		},
		Options: Options{Params: engine.Params{Consistency: engine.Quorum, Timestamp: 12, HasTimestamp: true}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("ReadBatch = %+v, want %+v", got, want)
	}
}

func TestReadValue_Version3HasNoUnset(t *testing.T) {
	t.Parallel()
	r := &body{b: []byte{0xff, 0xff, 0xff, 0xfe}}
	if v := r.value(3); v.Unset || v.Bytes != nil || r.err != nil {
		t.Errorf("value = %+v, %v; want null", v, r.err)
	}
}

// The texts match a real node.
func TestRead_Refusals(t *testing.T) {
	t.Parallel()
	read := func(op Opcode, b []byte) error {
		h := Header{Version: 4, Opcode: op}
		var err error
		switch op {
		case OpQuery:
			_, err = ReadQuery(h, b)
		case OpBatch:
			_, err = ReadBatch(h, b)
		case OpRegister:
			_, err = ReadRegister(h, b)
		}
		return err
	}
	least := []byte{0x80, 0, 0, 0, 0, 0, 0, 0}
	tests := []struct {
		name string
		op   Opcode
		body []byte
		code cqlerr.Code
		want string
	}{
		{"short length", OpQuery, []byte{0, 0}, cqlerr.Protocol, "truncated frame: expected 4 bytes, length is 2"},
		{"no consistency", OpQuery, []byte{0, 0, 0, 0}, cqlerr.Protocol, "truncated frame: expected 2 bytes, length is 0"},
		{"consistency", OpQuery, []byte{0, 0, 0, 0, 0, 0xff, 0}, cqlerr.Protocol, "Unknown code 255 for a consistency level"},
		{"flags", OpQuery, []byte{0, 0, 0, 0, 0, 1, 0xff}, cqlerr.Server, "Bit mask contains invalid enumeration indices."},
		{"timestamp", OpQuery, append([]byte{0, 0, 0, 0, 0, 1, 0x20}, least...), cqlerr.Protocol, "Out of bound timestamp, must be in [-9223372036854775807, 9223372036854775807] (got -9223372036854775808)"},
		{"value length", OpQuery, []byte{0, 0, 0, 0, 0, 1, 1, 0, 1, 0xff, 0xff, 0xff, 0xfd}, cqlerr.Protocol, "invalid value length: -3"},
		{"item kind", OpBatch, []byte{0, 0, 1, 2}, cqlerr.Protocol, "Invalid query kind in BATCH messages. Must be 0 or 1 but got 2"},
		{"event type", OpRegister, []byte{0, 1, 0, 6, 'N', 'O', 'S', 'U', 'C', 'H'}, cqlerr.Protocol, "Invalid value 'NOSUCH' for Event.Type"},
		{"text beyond the end", OpQuery, []byte{0x7f, 0xff, 0xff, 0xff, 'x'}, cqlerr.Protocol, "truncated frame: expected 2147483647 bytes, length is 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var ce *cqlerr.Error
			if err := read(tt.op, tt.body); !errors.As(err, &ce) || ce.Code != tt.code || ce.Message != tt.want {
				t.Errorf("error = %v, want %04x %s", err, tt.code, tt.want)
			}
		})
	}
}

func TestReadBatch_LeftOverBytesAreIgnored(t *testing.T) {
	t.Parallel()
	b, err := ReadBatch(Header{Version: 4}, []byte{9, 0, 0, 0, 1, 0, 'x'})
	if err != nil || b.Kind != 9 || len(b.Items) != 0 {
		t.Errorf("ReadBatch = %+v, %v; want an empty batch of kind 9", b, err)
	}
}

// FuzzRead feeds any bytes to all readers: they return, and cost no more
// memory than the bytes are worth.
func FuzzRead(f *testing.F) {
	for _, m := range []message.Message{
		&message.Query{Query: "SELECT * FROM t", Options: &message.QueryOptions{PageSize: 100, DefaultTimestamp: ptr(int64(1))}},
		&message.Batch{Children: []*message.BatchChild{{Query: "INSERT"}, {Id: []byte{1}, Values: []*primitive.Value{primitive.NewValue([]byte{3})}}}},
		&message.Prepare{Query: "SELECT"},
		message.NewStartup(),
		&message.Register{EventTypes: []primitive.EventType{primitive.EventTypeSchemaChange}},
	} {
		h, b := encodeRequest(f, primitive.ProtocolVersion4, m)
		f.Add(h.Version, h.Flags, byte(h.Opcode), b)
	}
	f.Add(byte(4), FlagCustomPayload, byte(OpQuery), []byte{0xff, 0xff, 0, 1, 'a', 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, version, flags, op byte, b []byte) {
		h := Header{Version: version, Flags: flags, Opcode: Opcode(op), Length: int32(min(len(b), math.MaxInt32))}
		ReadStartup(h, b)        //nolint:errcheck // any outcome will do
		ReadRegister(h, b)       //nolint:errcheck
		ReadAuthResponse(h, b)   //nolint:errcheck
		ReadPrepare(h, b)        //nolint:errcheck
		ReadQuery(h, b)          //nolint:errcheck
		ReadExecute(h, b, false) //nolint:errcheck
		if bt, err := ReadBatch(h, b); err == nil && len(bt.Items) > len(b) {
			t.Errorf("%d items from %d bytes", len(bt.Items), len(b))
		}
	})
}
