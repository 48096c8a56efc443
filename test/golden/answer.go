package golden

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Column is a column of a result or a bind marker.
type Column struct {
	Keyspace, Table, Name string
	Type                  *cqltype.Type
}

// Answer is a decoded response or event. The zero Opcode with Closed set is a
// connection that the server closed.
type Answer struct {
	Opcode      byte
	Version     byte
	HeaderFlags byte
	Stream      int16
	Closed      bool

	TracingID []byte
	Warnings  []string
	Payload   map[string][]byte

	// ERROR
	Code    int
	Message string
	Detail  map[string]any

	// SUPPORTED
	Supported map[string][]string

	// RESULT: Kind is Void, Rows, Set_keyspace, Prepared or Schema_change;
	// EVENT: the event's type. AUTHENTICATE: the class, in Message.
	Kind        string
	Change      []string // schema change and events
	ResultFlags int
	PagingState []byte
	Columns     []Column
	Rows        [][][]byte
	Keyspace    string

	// Prepared
	ID         []byte
	MetadataID []byte // also of rows with new metadata
	BindFlags  uint32
	PK         []int
	Bind       []Column
}

var opcodeNames = map[byte]string{
	opError: "ERROR", opReady: "READY", opAuthenticate: "AUTHENTICATE", opSupported: "SUPPORTED",
	opResult: "RESULT", opEvent: "EVENT",
}

// flags of rows and prepared metadata.
const (
	metaGlobalSpec  = 0x01
	metaMorePages   = 0x02
	metaNoMetadata  = 0x04
	metaNewMetadata = 0x08
)

// Decode decodes a response frame. Rows without metadata are decoded with columns, from
// the prepared statement.
func Decode(frame []byte, compression string, columns []Column) (*Answer, error) {
	return decode(frame, compression, columns, false)
}

// decode is Decode for a connection that asked for ids of metadata, or not.
func decode(frame []byte, compression string, columns []Column, metadataIDs bool) (*Answer, error) {
	h := parseHeader(frame)
	a := &Answer{Opcode: h.Opcode, Version: h.Version, HeaderFlags: h.Flags, Stream: h.Stream}
	body, err := decompress(frame, compression)
	if err != nil {
		return nil, err
	}
	r := &reader{b: body}
	if h.Flags&flagTracing != 0 {
		a.TracingID = r.take(16)
	}
	if h.Flags&flagWarning != 0 {
		a.Warnings = r.strings()
	}
	if h.Flags&flagPayload != 0 {
		a.Payload = map[string][]byte{}
		for range r.short() {
			k := r.string()
			a.Payload[k] = r.bytes()
		}
	}
	switch h.Opcode {
	case opError:
		a.readError(r)
	case opReady:
	case opAuthenticate:
		a.Message = r.string()
	case opSupported:
		a.Supported = r.multimap()
	case opResult:
		a.readResult(r, columns, metadataIDs)
	case opEvent:
		a.readEvent(r)
	default:
		return nil, fmt.Errorf("unknown opcode %02x", h.Opcode)
	}
	if r.err == nil && len(r.b) > 0 {
		r.err = fmt.Errorf("%d bytes left over in the body", len(r.b))
	}
	return a, r.err
}

var consistencies = []string{
	"ANY", "ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "SERIAL", "LOCAL_SERIAL", "LOCAL_ONE",
}

func (r *reader) consistency() string {
	if c := r.short(); c < len(consistencies) {
		return consistencies[c]
	}
	return "?"
}

func (a *Answer) readError(r *reader) {
	a.Code = r.int()
	a.Message = r.string()
	d := map[string]any{}
	switch a.Code {
	case 0x1000:
		d["consistency"] = r.consistency()
		d["required"] = r.int()
		d["alive"] = r.int()
	case 0x1100, 0x1200, 0x1300, 0x1500:
		d["consistency"] = r.consistency()
		d["received"] = r.int()
		d["blockfor"] = r.int()
		if a.Code == 0x1300 || a.Code == 0x1500 {
			d["failures"] = r.int()
		}
		if a.Code == 0x1100 || a.Code == 0x1500 {
			d["write_type"] = r.string()
		} else {
			d["data_present"] = int(r.byte())
		}
	case 0x2400:
		d["keyspace"] = r.string()
		d["table"] = r.string()
	case 0x2500:
		d["id"] = hex.EncodeToString(r.shortBytes())
	case 0xF000:
		d["op"] = int(r.byte())
		d["rejected_by_coordinator"] = int(r.byte())
	}
	if len(d) > 0 {
		a.Detail = d
	}
}

func (a *Answer) readResult(r *reader, columns []Column, metadataIDs bool) {
	switch kind := r.int(); kind {
	case 1:
		a.Kind = "Void"
	case 2:
		a.Kind = "Rows"
		n := a.readRowsMetadata(r)
		if a.ResultFlags&metaNoMetadata == 0 {
			columns = a.Columns
		}
		rows := r.int()
		for i := 0; i < rows && r.err == nil; i++ {
			row := make([][]byte, n)
			for j := range row {
				row[j] = r.bytes()
			}
			a.Rows = append(a.Rows, row)
		}
		if a.Columns == nil && len(columns) == n {
			a.Columns = columns
		}
	case 3:
		a.Kind = "Set_keyspace"
		a.Keyspace = r.string()
	case 4:
		a.Kind = "Prepared"
		a.ID = r.shortBytes()
		if metadataIDs {
			a.MetadataID = r.shortBytes()
		}
		a.readBindMetadata(r)
		a.readRowsMetadata(r)
	case 5:
		a.Kind = "Schema_change"
		a.readSchemaChange(r)
	default:
		a.Kind = strconv.Itoa(kind)
	}
}

func (a *Answer) readRowsMetadata(r *reader) (columns int) {
	a.ResultFlags = r.int()
	n := r.int()
	if a.ResultFlags&metaMorePages != 0 {
		a.PagingState = r.bytes()
	}
	if a.ResultFlags&metaNewMetadata != 0 {
		a.MetadataID = r.shortBytes()
	}
	if a.ResultFlags&metaNoMetadata == 0 {
		a.Columns = readSpecs(r, n, a.ResultFlags&metaGlobalSpec != 0)
	}
	return n
}

func (a *Answer) readBindMetadata(r *reader) {
	a.BindFlags = uint32(r.int())
	n := r.int()
	for range r.int() {
		a.PK = append(a.PK, r.short())
	}
	a.Bind = readSpecs(r, n, a.BindFlags&metaGlobalSpec != 0)
}

func readSpecs(r *reader, n int, global bool) []Column {
	var ks, table string
	if global {
		ks, table = r.string(), r.string()
	}
	cols := []Column{}
	for i := 0; i < n && r.err == nil; i++ {
		c := Column{Keyspace: ks, Table: table}
		if !global {
			c.Keyspace, c.Table = r.string(), r.string()
		}
		c.Name = r.string()
		c.Type = r.option()
		cols = append(cols, c)
	}
	return cols
}

func (a *Answer) readSchemaChange(r *reader) {
	change, target, ks := r.string(), r.string(), r.string()
	a.Change = []string{change, target, ks}
	if target != "KEYSPACE" {
		a.Change = append(a.Change, r.string())
	}
}

func (a *Answer) readEvent(r *reader) {
	a.Kind = r.string()
	if a.Kind == "SCHEMA_CHANGE" {
		a.readSchemaChange(r)
		return
	}
	what := r.string()
	addr, _ := netip.AddrFromSlice(r.take(int(r.byte())))
	port := r.int()
	a.Change = []string{what, netip.AddrPortFrom(addr, uint16(port)).String()}
}

func be64(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }
