package golden

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/test/cqlvalue"
)

// Decoded is an Answer in the readable form of the recordings' "decoded".
type Decoded struct {
	Opcode      string              `json:"opcode"`
	Note        string              `json:"note"`
	Flags       string              `json:"flags"`
	TracingID   string              `json:"tracing_id"`
	Warnings    []string            `json:"warnings"`
	Result      string              `json:"result"`
	ResultFlags string              `json:"result_flags"`
	PagingState string              `json:"paging_state"`
	Columns     []string            `json:"columns"`
	Rows        [][]*string         `json:"rows"`
	RowCount    int                 `json:"row_count"`
	Error       string              `json:"error"`
	Message     string              `json:"message"`
	Detail      map[string]any      `json:"detail"`
	Options     map[string][]string `json:"options"`
	Change      []string            `json:"change"`
	ID          string              `json:"id"`
	BindFlags   string              `json:"bind_flags"`
	Bind        []string            `json:"bind"`
	PK          []int               `json:"pk"`
}

// Render converts an answer to its readable form.
func Render(a *Answer) *Decoded {
	if a.Closed {
		return &Decoded{Note: "connection closed"}
	}
	d := &Decoded{
		Opcode: opcodeNames[a.Opcode], Warnings: a.Warnings, Message: a.Message, Detail: a.Detail,
		Options: a.Supported, Result: a.Kind, Change: a.Change, PK: a.PK,
		PagingState: hex.EncodeToString(a.PagingState), ID: hex.EncodeToString(a.ID),
	}
	if a.HeaderFlags != 0 {
		d.Flags = fmt.Sprintf("%02x", a.HeaderFlags)
	}
	if a.TracingID != nil {
		d.TracingID = cqlvalue.Format(cqltype.TUUID, a.TracingID)
	}
	if a.Opcode == opError {
		d.Error = fmt.Sprintf("%04X", a.Code)
	}
	switch a.Kind {
	case "Set_keyspace":
		d.Message = a.Keyspace
	case "Prepared":
		d.BindFlags = fmt.Sprintf("%x", a.BindFlags)
		d.Bind = columnNames(a.Bind)
		fallthrough
	case "Rows":
		d.ResultFlags = fmt.Sprintf("%x", a.ResultFlags)
		if a.ResultFlags&metaNoMetadata == 0 {
			d.Columns = columnNames(a.Columns)
		}
		d.RowCount = len(a.Rows)
		for _, row := range a.Rows {
			d.Rows = append(d.Rows, renderRow(a.Columns, row))
		}
	}
	return d
}

func columnNames(cols []Column) []string {
	var out []string
	for _, c := range cols {
		out = append(out, fmt.Sprintf("%s.%s.%s %s", c.Keyspace, c.Table, c.Name, typeName(c.Type)))
	}
	return out
}

// typeName returns a type as in the metadata, which does not contain frozen.
func typeName(t *cqltype.Type) string {
	var parts []string
	switch t.Kind {
	case cqltype.Varchar:
		return "varchar"
	case cqltype.List:
		return "list<" + typeName(t.Elem) + ">"
	case cqltype.Set:
		return "set<" + typeName(t.Elem) + ">"
	case cqltype.Map:
		return "map<" + typeName(t.Key) + ", " + typeName(t.Elem) + ">"
	case cqltype.Tuple:
		for _, f := range t.Fields {
			parts = append(parts, typeName(f))
		}
		return "tuple<" + strings.Join(parts, ", ") + ">"
	}
	return t.String()
}

func renderRow(cols []Column, row [][]byte) []*string {
	out := make([]*string, len(row))
	for i, v := range row {
		if v == nil {
			continue
		}
		s := "0x" + hex.EncodeToString(v)
		if i < len(cols) {
			s = cqlvalue.Format(cols[i].Type, v)
		}
		out[i] = &s
	}
	return out
}
