package wire

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

func appendShort(dst []byte, n uint16) []byte { return binary.BigEndian.AppendUint16(dst, n) }

func appendInt(dst []byte, n int32) []byte { return binary.BigEndian.AppendUint32(dst, uint32(n)) }

func appendString(dst []byte, s string) []byte {
	if len(s) > 0xFFFF {
		s = s[:0xFFFF]
	}
	dst = appendShort(dst, uint16(len(s)))
	return append(dst, s...)
}

func appendShortBytes(dst, b []byte) []byte {
	dst = appendShort(dst, uint16(len(b)))
	return append(dst, b...)
}

func appendBytes(dst, b []byte) []byte {
	dst = appendInt(dst, int32(len(b)))
	return append(dst, b...)
}

// AppendStringList appends a [string list], the form of warnings.
func AppendStringList(dst []byte, list []string) []byte {
	dst = appendShort(dst, uint16(len(list)))
	for _, s := range list {
		dst = appendString(dst, s)
	}
	return dst
}

// AppendPayload appends a custom payload, a [bytes map], of one entry.
func AppendPayload(dst []byte, key string, value []byte) []byte {
	return appendBytes(appendString(appendShort(dst, 1), key), value)
}

// AppendSupported appends the body of SUPPORTED with the keys in order.
func AppendSupported(dst []byte, m map[string][]string) []byte {
	dst = appendShort(dst, uint16(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		dst = appendString(dst, k)
		dst = AppendStringList(dst, m[k])
	}
	return dst
}

// AppendAuthenticate appends the body of AUTHENTICATE.
func AppendAuthenticate(dst []byte, class string) []byte { return appendString(dst, class) }

// AppendAuthSuccess appends the body of AUTH_SUCCESS, without a token.
func AppendAuthSuccess(dst []byte) []byte { return appendInt(dst, -1) }

// AppendError appends the body of ERROR.
func AppendError(dst []byte, e *cqlerr.Error) []byte {
	dst = appendInt(dst, int32(e.Code))
	dst = appendString(dst, e.Message)
	switch e.Code {
	case cqlerr.Unavailable:
		dst = appendShort(dst, e.Consistency)
		dst = appendInt(dst, e.BlockFor)
		dst = appendInt(dst, e.Received)
	case cqlerr.WriteTimeout:
		dst = appendString(appendReplicas(dst, e), e.WriteType)
	case cqlerr.ReadTimeout:
		dst = append(appendReplicas(dst, e), cqltype.EncodeBool(e.DataPresent)...)
	case cqlerr.AlreadyExists:
		dst = appendString(dst, e.Keyspace)
		dst = appendString(dst, e.Table)
	case cqlerr.Unprepared:
		dst = appendShortBytes(dst, e.ID)
	}
	return dst
}

func appendReplicas(dst []byte, e *cqlerr.Error) []byte {
	dst = appendShort(dst, e.Consistency)
	dst = appendInt(dst, e.Received)
	return appendInt(dst, e.BlockFor)
}

// The kinds of RESULT.
const (
	resultVoid         = 1
	resultRows         = 2
	resultSetKeyspace  = 3
	resultPrepared     = 4
	resultSchemaChange = 5
)

// The flags of result metadata.
const (
	metaGlobalSpec = 0x01
	metaMorePages  = 0x02
	metaNone       = 0x04
	metaChanged    = 0x08
	metaLWT        = 1 << 31
)

// AppendVoid appends the body of a Void RESULT.
func AppendVoid(dst []byte) []byte { return appendInt(dst, resultVoid) }

// AppendSetKeyspace appends the body of a Set_keyspace RESULT.
func AppendSetKeyspace(dst []byte, keyspace string) []byte {
	return appendString(appendInt(dst, resultSetKeyspace), keyspace)
}

// AppendSchemaResult appends the body of a Schema_change RESULT.
func AppendSchemaResult(dst []byte, c catalog.Change) []byte {
	return appendChange(appendInt(dst, resultSchemaChange), c)
}

// Columns is the metadata of a result.
type Columns struct {
	// Global means that the specs begin with the table of all columns.
	Global bool
	// Specs are the encoded column specs; nil sends no metadata.
	Specs []byte
	// ID is the metadata's id for a client that has another one, else nil.
	ID []byte
}

// NewColumns encodes column specs, with one table for all of them or each with its own.
func NewColumns(cols []engine.ColumnSpec, global bool) Columns {
	global = global && len(cols) > 0
	return Columns{Global: global, Specs: appendColumns([]byte{}, cols, global)}
}

// appendColumns appends column specs, with the table of all of them first if global is set.
func appendColumns(dst []byte, cols []engine.ColumnSpec, global bool) []byte {
	for i, c := range cols {
		if i == 0 || !global {
			dst = appendString(dst, c.Keyspace)
			dst = appendString(dst, c.Table)
		}
		dst = appendString(dst, c.Name)
		dst = cqltype.AppendOption(dst, c.Type)
	}
	return dst
}

// AppendRows appends the body of a Rows RESULT. columns is the metadata of res.Columns.
func AppendRows(dst []byte, res *engine.Result, columns Columns) []byte {
	dst = appendInt(dst, resultRows)
	flags := int32(0)
	if columns.Specs == nil {
		flags |= metaNone
	}
	if columns.Global {
		flags |= metaGlobalSpec
	}
	if columns.ID != nil {
		flags |= metaChanged
	}
	if res.PagingState != nil {
		flags |= metaMorePages
	}
	dst = appendInt(dst, flags)
	dst = appendInt(dst, int32(len(res.Columns)))
	if res.PagingState != nil {
		dst = appendBytes(dst, res.PagingState)
	}
	if columns.ID != nil {
		dst = appendShortBytes(dst, columns.ID)
	}
	dst = append(dst, columns.Specs...)
	dst = appendInt(dst, res.RowCount)
	return append(dst, res.Rows...)
}

// AppendPrepared appends the body of a Prepared RESULT. A nil plan is a statement
// without bind and result columns (DDL). markLWT means that the client knows the LWT
// bit. columns is the metadata of plan.Result, with its id if the client asked for ids.
func AppendPrepared(dst []byte, version byte, id []byte, plan *engine.Plan, columns Columns, markLWT bool) []byte {
	dst = appendInt(dst, resultPrepared)
	dst = appendShortBytes(dst, id)
	if columns.ID != nil {
		dst = appendShortBytes(dst, columns.ID)
	}
	if plan == nil {
		plan = &engine.Plan{}
	}
	flags := uint32(0)
	global := plan.GlobalBinds && len(plan.Binds) > 0
	if global {
		flags |= metaGlobalSpec
	}
	if plan.LWT && markLWT {
		flags |= metaLWT
	}
	dst = appendInt(dst, int32(flags))
	dst = appendInt(dst, int32(len(plan.Binds)))
	if version >= 4 {
		dst = appendInt(dst, int32(len(plan.PKIndexes)))
		for _, i := range plan.PKIndexes {
			dst = appendShort(dst, i)
		}
	}
	dst = appendColumns(dst, plan.Binds, global)
	if plan.Result == nil {
		dst = appendInt(dst, metaNone)
		return appendInt(dst, 0)
	}
	spec := int32(0)
	if columns.Global {
		spec = metaGlobalSpec
	}
	dst = appendInt(dst, spec)
	dst = appendInt(dst, int32(len(plan.Result)))
	return append(dst, columns.Specs...)
}
