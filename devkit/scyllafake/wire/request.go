package wire

import (
	"math"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// The flags of QUERY, EXECUTE and BATCH.
const (
	queryValues            byte = 0x01
	querySkipMetadata      byte = 0x02
	queryPageSize          byte = 0x04
	queryPagingState       byte = 0x08
	querySerialConsistency byte = 0x10
	queryTimestamp         byte = 0x20
	queryNames             byte = 0x40
)

// Options are the parameters of a QUERY, EXECUTE or BATCH.
type Options struct {
	engine.Params // but for ServerTimestamp
	SkipMetadata  bool
}

// Query is a QUERY request.
type Query struct {
	Text    string
	Options Options
}

// Execute is an EXECUTE request.
type Execute struct {
	ID []byte
	// MetadataID is the id of the result metadata that the client has, if it asked for
	// ids.
	MetadataID []byte
	Options    Options
}

// BatchItem is one statement of a BATCH: a text, or the id of a prepared one.
type BatchItem struct {
	Text   string
	ID     []byte // nil for a text
	Values []engine.Value
}

// Batch is a BATCH request.
type Batch struct {
	Kind    byte
	Items   []BatchItem
	Options Options
}

// ReadStartup reads the options of a STARTUP.
func ReadStartup(h Header, b []byte) (map[string]string, error) {
	r := open(h, b)
	m := r.stringMap()
	return m, r.err
}

// ReadRegister reads the event types of a REGISTER.
func ReadRegister(h Header, b []byte) ([]string, error) {
	r := open(h, b)
	n := r.short()
	var out []string
	for range n {
		t := r.string()
		if r.err != nil {
			return nil, r.err
		}
		switch t {
		case EventTopology, EventStatus, EventSchema:
			out = append(out, t)
		default:
			return nil, cqlerr.New(cqlerr.Protocol, "Invalid value '%s' for Event.Type", t)
		}
	}
	return out, r.err
}

// ReadAuthResponse reads the token of an AUTH_RESPONSE.
func ReadAuthResponse(h Header, b []byte) ([]byte, error) {
	r := open(h, b)
	token := r.bytes()
	return token, r.err
}

// ReadPrepare reads the text of a PREPARE.
func ReadPrepare(h Header, b []byte) (string, error) {
	r := open(h, b)
	text := r.longString()
	return text, r.err
}

// ReadQuery reads a QUERY.
func ReadQuery(h Header, b []byte) (q Query, err error) {
	r := open(h, b)
	q.Text = r.longString()
	r.options(h.Version, &q.Options)
	return q, r.err
}

// ReadExecute reads an EXECUTE, which has a metadata id if the client asked for them.
func ReadExecute(h Header, b []byte, metadataID bool) (e Execute, err error) {
	r := open(h, b)
	e.ID = r.shortBytes()
	if metadataID {
		e.MetadataID = r.shortBytes()
	}
	r.options(h.Version, &e.Options)
	return e, r.err
}

// ReadBatch reads a BATCH.
func ReadBatch(h Header, b []byte) (bt Batch, err error) {
	r := open(h, b)
	bt.Kind = r.byte()
	n := int(r.short())
	if r.err == nil {
		// An item takes 4 bytes or more, so a false count costs no memory.
		bt.Items = make([]BatchItem, 0, min(n, len(r.b)/4+1))
	}
	for range n {
		if r.err != nil {
			return bt, r.err
		}
		var it BatchItem
		switch kind := r.byte(); kind {
		case 0:
			it.Text = r.longString()
		case 1:
			it.ID = r.shortBytes()
		default:
			r.fail(cqlerr.New(cqlerr.Protocol,
				"Invalid query kind in BATCH messages. Must be 0 or 1 but got %d", kind))
		}
		it.Values = r.values(h.Version)
		bt.Items = append(bt.Items, it)
	}
	r.options(h.Version, &bt.Options)
	return bt, r.err
}

func open(h Header, b []byte) *body {
	r := &body{b: b}
	if h.Flags&FlagCustomPayload != 0 {
		r.skipPayload()
	}
	return r
}

func (r *body) consistency() engine.Consistency {
	c := r.short()
	if r.err == nil && c > uint16(engine.LocalOne) {
		r.fail(cqlerr.New(cqlerr.Protocol, "Unknown code %d for a consistency level", c))
	}
	return engine.Consistency(c)
}

// options reads the part after the statement; the order of the checks is ScyllaDB's.
func (r *body) options(version byte, o *Options) {
	o.Consistency = r.consistency()
	flags := r.byte()
	if r.err != nil {
		return
	}
	if flags&0x80 != 0 {
		r.fail(cqlerr.New(cqlerr.Server, "Bit mask contains invalid enumeration indices."))
		return
	}
	if flags&queryValues != 0 {
		if flags&queryNames != 0 {
			r.fail(cqlerr.Unsupported("values bound by name"))
			return
		}
		o.Values = r.values(version)
	}
	o.SkipMetadata = flags&querySkipMetadata != 0
	if flags&queryPageSize != 0 {
		o.PageSize = max(r.int(), 0)
	}
	if flags&queryPagingState != 0 {
		o.PagingState = r.bytes()
	}
	if flags&querySerialConsistency != 0 {
		o.SerialConsistency = r.consistency()
	}
	if flags&queryTimestamp != 0 {
		o.Timestamp = r.long()
		o.HasTimestamp = true
		if r.err == nil && o.Timestamp == math.MinInt64 {
			r.fail(cqlerr.New(cqlerr.Protocol, "Out of bound timestamp, must be in [%d, %d] (got %d)",
				int64(math.MinInt64+1), int64(math.MaxInt64), o.Timestamp))
		}
	}
}

func (r *body) values(version byte) []engine.Value {
	n := int(r.short())
	if n == 0 || r.err != nil {
		return nil
	}
	out := make([]engine.Value, 0, min(n, len(r.b)/4+1))
	for range n {
		v := r.value(version)
		if r.err != nil {
			return nil
		}
		out = append(out, v)
	}
	return out
}

// value reads [value]: version 3 has no unset values.
func (r *body) value(version byte) engine.Value {
	switch n := r.int(); {
	case n >= 0:
		b := r.take(int(n))
		if b == nil && r.err == nil {
			b = []byte{}
		}
		return engine.Value{Bytes: b}
	case n == -1 || version < 4:
		return engine.Value{}
	case n == -2:
		return engine.Value{Unset: true}
	default:
		r.fail(cqlerr.New(cqlerr.Protocol, "invalid value length: %d", n))
		return engine.Value{}
	}
}
