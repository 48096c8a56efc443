package golden

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Statement is an action of another client during a trace.
type Statement struct {
	At     time.Time
	CQL    string
	Values [][]byte
	// Node, if set, is executed on the node instead.
	Node func() error
}

// Schema returns the texts of the trace's CREATE and ALTER statements.
func (t *Trace) Schema() (create, alter []string) {
	for _, f := range t.Frames {
		var d struct{ CQL, Opcode string }
		if f.Dir != "request" || json.Unmarshal(f.Decoded, &d) != nil || d.Opcode != "QUERY" {
			continue
		}
		switch {
		case strings.HasPrefix(d.CQL, "CREATE "):
			create = append(create, noImages.Replace(d.CQL))
		case strings.HasPrefix(d.CQL, "ALTER "):
			alter = append(alter, d.CQL)
		}
	}
	return create, alter
}

// Unrecorded returns the actions of a client without recorded frames that explain this
// trace's responses: schema is a trace of a client that did the same before a recorder.
// Tables are created before all else and altered when the trace received the event;
// each row of a CDC log that the trace read is inserted at its time.
func (t *Trace) Unrecorded(schema *Trace) ([]Statement, error) {
	create, alter := schema.Schema()
	var out []Statement
	seen := map[string]bool{}
	columns := map[string][]Column{} // by prepared id
	ids := map[string]string{}       // by connection and stream
	for _, f := range t.Frames {
		slot := fmt.Sprintf("%d/%d", f.Conn, f.Stream)
		switch f.Dir {
		case "request":
			delete(ids, slot)
			if q, err := parseRequest(f.Frame, "", false); err == nil {
				ids[slot] = string(q.id)
			}
			continue
		case "response", "event":
		default:
			continue
		}
		a, err := Decode(f.Frame, "", columns[ids[slot]])
		if err != nil {
			return nil, err
		}
		switch {
		case a.Kind == "Prepared":
			columns[string(a.ID)] = a.Columns
		case f.Dir == "event" && slices.Equal(a.Change[:2], []string{"UPDATED", "TABLE"}):
			for _, cql := range alter {
				if strings.Contains(cql, "TABLE "+strings.Join(a.Change[2:], ".")+" ") {
					// The statement was sent shortly before its event came.
					out = append(out, Statement{At: t.at(f).Add(-time.Millisecond), CQL: cql})
				}
			}
		case len(a.Columns) > 0 && strings.HasSuffix(a.Columns[0].Table, "_scylla_cdc_log"):
			for _, row := range a.Rows {
				if s := insert(a.Columns, row); !seen[string(row[0])+string(row[1])+string(row[2])] {
					seen[string(row[0])+string(row[1])+string(row[2])] = true
					out = append(out, s)
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Statement) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	first := t.Start
	if len(out) > 0 && out[0].At.Before(first) {
		first = out[0].At
	}
	var tables []Statement
	for _, cql := range create {
		tables = append(tables, Statement{At: first, CQL: cql})
	}
	return append(tables, out...), nil
}

// at returns when a frame was recorded.
func (t *Trace) at(f *Frame) time.Time {
	return t.Start.Add(time.Duration(f.AtMS * float64(time.Millisecond)))
}

// insert inserts a row of a result; a row of a CDC log at its own time.
func insert(cols []Column, row [][]byte) Statement {
	var names, marks []string
	s := Statement{}
	for i, c := range cols {
		if c.Name == "cdc$time" {
			s.At = time.UnixMicro(cqltype.TimeUUIDMicros(row[i]))
		}
		if row[i] != nil {
			names = append(names, quoteIdent(c.Name))
			marks = append(marks, "?")
			s.Values = append(s.Values, row[i])
		}
	}
	s.CQL = fmt.Sprintf("INSERT INTO %s.%s (%s) VALUES (%s)", cols[0].Keyspace, cols[0].Table,
		strings.Join(names, ", "), strings.Join(marks, ", "))
	return s
}

// frame returns the QUERY of the statement, at ONE.
func (s Statement) frame() []byte {
	body := binary.BigEndian.AppendUint32(nil, uint32(len(s.CQL)))
	body = append(body, s.CQL...)
	body = append(body, 0, 1)
	if len(s.Values) == 0 {
		body = append(body, 0)
	} else {
		body = append(body, withValues)
		values := make([]Value, len(s.Values))
		for i, v := range s.Values {
			values[i].Bytes = v
		}
		body = appendValues(body, values)
	}
	return header{Version: 4, Stream: 1, Opcode: opQuery}.frame(body)
}

// startupFrame begins a connection.
func startupFrame() []byte {
	const key, val = "CQL_VERSION", "3.0.0"
	body := []byte{0, 1, 0, byte(len(key))}
	body = append(append(body, key...), 0, byte(len(val)))
	return header{Version: 4, Stream: 1, Opcode: opStartup}.frame(append(body, val...))
}

// quoteIdent returns name as in CQL: bare when it is a lower-case identifier, otherwise
// in double quotes.
func quoteIdent(name string) string {
	bare := name != ""
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || i > 0 && (c == '_' || c >= '0' && c <= '9')) {
			bare = false
			break
		}
	}
	if bare {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}
