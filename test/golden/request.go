package golden

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// request is a QUERY, PREPARE, EXECUTE or BATCH, decoded just enough to replace
// prepared ids and the paging state.
type request struct {
	header header
	body   []byte
	text   string
	id     []byte // EXECUTE
	// state is the paging state, nil if there is none.
	state []byte

	// idAt and stateAt are the positions of the ids and of the state in body.
	idAt    []span
	stateAt span
}

// span is a part of the body; the field before it contains its length.
type span struct {
	from, to int
	short    bool // the length before it is 16 bits wide, else 32
}

// query flags.
const (
	withValues      = 0x01
	withPageSize    = 0x04
	withPagingState = 0x08
	withNames       = 0x40
)

// parseRequest decodes a request frame. It fails on frames that are not well-formed
// requests of those four kinds; these are sent unchanged.
func parseRequest(frame []byte, compression string, metadataIDs bool) (*request, error) {
	if len(frame) < headerSize {
		return nil, fmt.Errorf("frame of %d bytes", len(frame))
	}
	q := &request{header: parseHeader(frame)}
	body, err := decompress(frame, compression)
	if err != nil {
		return nil, err
	}
	q.body = body
	r := &reader{b: body}
	at := func() int { return len(body) - len(r.b) }
	switch q.header.Opcode {
	case opPrepare:
		q.text = string(r.bytes())
		return q, r.err
	case opQuery:
		q.text = string(r.bytes())
	case opExecute:
		q.id = r.shortBytes()
		q.idAt = append(q.idAt, span{at() - len(q.id), at(), true})
		if metadataIDs {
			id := r.shortBytes()
			q.idAt = append(q.idAt, span{at() - len(id), at(), true})
		}
	case opBatch:
		r.byte()
		for range r.short() {
			if r.err != nil {
				break
			}
			if r.byte() == 0 {
				q.text += string(r.bytes()) + ";"
			} else {
				id := r.shortBytes()
				q.idAt = append(q.idAt, span{at() - len(id), at(), true})
			}
			for range r.short() {
				r.value()
			}
		}
		return q, r.err
	default:
		return nil, fmt.Errorf("opcode %02x", q.header.Opcode)
	}
	r.short() // consistency
	flags := r.byte()
	if flags&withValues != 0 {
		for range r.short() {
			if flags&withNames != 0 {
				r.string()
			}
			r.value()
		}
	}
	if flags&withPageSize != 0 {
		r.int()
	}
	if flags&withPagingState != 0 {
		q.state = r.bytes()
		q.stateAt = span{at() - len(q.state), at(), false}
	}
	return q, r.err
}

// rewrite builds the frame with other ids and another paging state.
func (q *request) rewrite(id func([]byte) []byte, state func([]byte) []byte, compression string) ([]byte, error) {
	body := slices.Clone(q.body)
	// From the end, so that earlier positions stay valid.
	if q.state != nil {
		body = q.stateAt.replace(body, state(q.state))
	}
	for _, s := range slices.Backward(q.idAt) {
		body = s.replace(body, id(q.body[s.from:s.to]))
	}
	if q.header.Flags&flagCompressed != 0 {
		var err error
		if body, err = compress(body, compression); err != nil {
			return nil, err
		}
	}
	return q.header.frame(body), nil
}

// ofUserType matches the columns of CREATE TABLE of the recordings' user-defined type.
var ofUserType = regexp.MustCompile(`\b(frozen<u>|u)([,)])`)

// withoutUserTypes gives the columns of a new table, of the recordings' user-defined type
// u, the tuple of its fields, which has the same values: the server has no such types.
func (q *request) withoutUserTypes() {
	q.rewriteCreate(func(text string) string { return ofUserType.ReplaceAllString(text, "tuple<int, text>$2") })
}

// noImages replaces the text that makes a table whose CDC log has images, which the server
// does not make, by that of one without: the other rows of the log have the same values.
var noImages = strings.NewReplacer(", 'preimage': true", "", ", 'postimage': true", "")

// rewriteCreate replaces the text of a CREATE TABLE.
func (q *request) rewriteCreate(replace func(string) string) {
	if q.header.Opcode != opQuery || !strings.HasPrefix(q.text, "CREATE TABLE ") {
		return
	}
	text := replace(q.text)
	const at = 4 // the length is before the text
	q.body = span{at, at + len(q.text), false}.replace(q.body, []byte(text))
	q.text = text
}

func (s span) replace(body, with []byte) []byte {
	out := slices.Replace(body, s.from, s.to, with...)
	if s.short {
		binary.BigEndian.PutUint16(out[s.from-2:], uint16(len(with)))
	} else {
		binary.BigEndian.PutUint32(out[s.from-4:], uint32(len(with)))
	}
	return out
}

// appendValues appends bound values as EXECUTE and BATCH carry them.
func appendValues(b []byte, values []Value) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(values)))
	for _, v := range values {
		if v.Unset {
			b = append(b, 0xff, 0xff, 0xff, 0xfe)
			continue
		}
		b = cqltype.AppendElement(b, v.Bytes)
	}
	return b
}

// restore rebuilds a request that the recording has truncated, from its description. It
// supports exactly the truncated kinds: EXECUTE and BATCH with large values, and raw
// frames of zeros.
func restore(r *Record, idOf func(text string) []byte) ([]byte, error) {
	h := parseHeader(r.Request)
	switch r.Kind {
	case "raw":
		return append(r.Request[:len(r.Request):len(r.Request)], make([]byte, headerSize+h.Length-len(r.Request))...), nil
	case "execute":
		values, err := ParseValues(r.Values)
		if err != nil {
			return nil, err
		}
		body := appendShortBytes(nil, idOf(r.CQL))
		body = append(body, 0, 1, withValues|withPageSize) // ONE
		body = appendValues(body, values)
		return h.frame(binary.BigEndian.AppendUint32(body, 5000)), nil
	case "batch":
		return restoreBatch(h, r.CQL, idOf)
	}
	return nil, fmt.Errorf("cannot restore a %s", r.Kind)
}

func restoreBatch(h header, text string, idOf func(string) []byte) ([]byte, error) {
	kind, items, ok := strings.Cut(strings.TrimSuffix(text, " }"), " { ")
	if !ok {
		return nil, fmt.Errorf("no batch: %s", text)
	}
	list := strings.Split(items, " ;; ")
	body := []byte{byte(slices.Index([]string{"LOGGED", "UNLOGGED", "COUNTER"}, kind))}
	body = binary.BigEndian.AppendUint16(body, uint16(len(list)))
	for _, item := range list {
		inner, statement, ok := strings.Cut(strings.TrimPrefix(item, "("), ") ")
		if !ok {
			return nil, fmt.Errorf("no prepared item: %s", item)
		}
		values, err := ParseValues(inner)
		if err != nil {
			return nil, err
		}
		body = appendShortBytes(append(body, 1), idOf(statement))
		body = appendValues(body, values)
	}
	return h.frame(append(body, 0, 1, 0)), nil // ONE, no flags
}

func appendShortBytes(b, v []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(v))), v...)
}
