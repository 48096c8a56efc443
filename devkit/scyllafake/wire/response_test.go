package wire

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// response builds a frame around a body.
func response(op Opcode, add func([]byte) []byte) []byte {
	b := add(Begin(nil, 4, 5, op))
	End(b, 0)
	return b
}

// decodeFrame reads a frame with an independent codec.
func decodeFrame(t *testing.T, b []byte) message.Message {
	t.Helper()
	f, err := frame.NewCodec().DecodeFrame(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("decode %x: %v", b, err)
	}
	return f.Body.Message
}

func specs(names ...string) []engine.ColumnSpec {
	var out []engine.ColumnSpec
	for _, n := range names {
		out = append(out, engine.ColumnSpec{Keyspace: "ks", Table: "t", Name: n, Type: cqltype.TInt})
	}
	return out
}

func TestAppendRows(t *testing.T) {
	t.Parallel()
	cols := specs("a", "b")
	cols[1].Type = cqltype.NewMap(cqltype.TText, cqltype.NewTuple(cqltype.TInt))
	res := &engine.Result{
		Columns: cols, RowCount: 1, PagingState: []byte("more"),
		Rows: []byte{0, 0, 0, 4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff},
	}
	got := decodeFrame(t, response(OpResult, func(b []byte) []byte { return AppendRows(b, res, NewColumns(cols, false)) })).(*message.RowsResult)
	if len(got.Metadata.Columns) != 2 || got.Metadata.Columns[1].Name != "b" || string(got.Metadata.PagingState) != "more" {
		t.Errorf("metadata = %v", got.Metadata)
	}
	if typ := fmt.Sprint(got.Metadata.Columns[1].Type); !strings.Contains(typ, "map<varchar") || !strings.Contains(typ, "tuple<int>") {
		t.Errorf("type = %s", typ)
	}
	if len(got.Data) != 1 || !bytes.Equal(got.Data[0][0], []byte{0, 0, 0, 1}) || got.Data[0][1] != nil {
		t.Errorf("rows = %v", got.Data)
	}
	bare := decodeFrame(t, response(OpResult, func(b []byte) []byte { return AppendRows(b, res, Columns{}) })).(*message.RowsResult)
	if bare.Metadata.Columns != nil || bare.Metadata.ColumnCount != 2 {
		t.Errorf("without metadata: %v", bare.Metadata)
	}
}

func TestAppendPrepared(t *testing.T) {
	t.Parallel()
	id := []byte("0123456789abcdef")
	plan := &engine.Plan{Binds: specs("p", "c"), GlobalBinds: true, PKIndexes: []uint16{0}, Result: specs("p"), LWT: true}
	b := response(OpResult, func(b []byte) []byte { return AppendPrepared(b, 4, id, plan, NewColumns(plan.Result, false), true) })
	if flags := b[HeaderSize+4+2+len(id):][:4]; !bytes.Equal(flags, []byte{0x80, 0, 0, 1}) {
		t.Errorf("flags = %x, want the LWT bit and a global spec", flags)
	}
	b = response(OpResult, func(b []byte) []byte { return AppendPrepared(b, 4, id, plan, NewColumns(plan.Result, false), false) })
	got := decodeFrame(t, b).(*message.PreparedResult)
	if !bytes.Equal(got.PreparedQueryId, id) || len(got.VariablesMetadata.Columns) != 2 || got.VariablesMetadata.Columns[1].Name != "c" ||
		len(got.VariablesMetadata.PkIndices) != 1 || len(got.ResultMetadata.Columns) != 1 {
		t.Errorf("prepared = %+v %+v", got.VariablesMetadata, got.ResultMetadata)
	}
	// A schema statement: recording A7 of CREATE TABLE.
	b = AppendPrepared(nil, 4, id, nil, Columns{}, true)
	if want := "00000004" + "0010" + hex.EncodeToString(id) + "00000000" + "00000000" + "00000000" + "00000004" + "00000000"; hex.EncodeToString(b) != want {
		t.Errorf("prepared DDL = %x, want %s", b, want)
	}
}

func TestAppendError(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in    *cqlerr.Error
		check func(message.Message) bool
	}{
		{&cqlerr.Error{Code: cqlerr.Invalid, Message: "no"}, func(m message.Message) bool { return m.(*message.Invalid).ErrorMessage == "no" }},
		{&cqlerr.Error{Code: cqlerr.Unavailable, Consistency: 4, BlockFor: 2, Received: 1}, func(m message.Message) bool {
			e := m.(*message.Unavailable)
			return e.Consistency == 4 && e.Required == 2 && e.Alive == 1
		}},
		{&cqlerr.Error{Code: cqlerr.WriteTimeout, Consistency: 1, BlockFor: 1, WriteType: "BATCH_LOG"}, func(m message.Message) bool {
			e := m.(*message.WriteTimeout)
			return e.WriteType == "BATCH_LOG" && e.BlockFor == 1 && e.Received == 0
		}},
		{&cqlerr.Error{Code: cqlerr.ReadTimeout, DataPresent: true}, func(m message.Message) bool { return m.(*message.ReadTimeout).DataPresent }},
		{&cqlerr.Error{Code: cqlerr.AlreadyExists, Keyspace: "ks", Table: "t"}, func(m message.Message) bool {
			e := m.(*message.AlreadyExists)
			return e.Keyspace == "ks" && e.Table == "t"
		}},
		{&cqlerr.Error{Code: cqlerr.Unprepared, ID: []byte{1, 2}}, func(m message.Message) bool { return bytes.Equal(m.(*message.Unprepared).Id, []byte{1, 2}) }},
	}
	for _, tt := range tests {
		m := decodeFrame(t, response(OpError, func(b []byte) []byte { return AppendError(b, tt.in) }))
		if !tt.check(m) {
			t.Errorf("%v became %v", tt.in, m)
		}
	}
}

func TestAppendEvents(t *testing.T) {
	t.Parallel()
	e := decodeFrame(t, AppendSchemaEvent(nil, 4, catalog.Change{Kind: catalog.Created, Target: catalog.TargetTable, Keyspace: "ks", Object: "t"})).(*message.SchemaChangeEvent)
	if e.ChangeType != "CREATED" || e.Target != "TABLE" || e.Keyspace != "ks" || e.Object != "t" {
		t.Errorf("event = %+v", e)
	}
	n := decodeFrame(t, AppendNodeEvent(nil, 4, EventStatus, "UP", netip.MustParseAddrPort("127.0.0.2:9042"))).(*message.StatusChangeEvent)
	if n.ChangeType != "UP" || n.Address.String() != "127.0.0.2:9042" {
		t.Errorf("event = %+v", n)
	}
}
