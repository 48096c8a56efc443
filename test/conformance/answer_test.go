package conformance

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
)

// answerLines formats an answer as corpus/README.md describes. columns are for
// rows without metadata.
func answerLines(m message.Message, columns []*message.ColumnMetadata) ([]string, error) {
	switch m := m.(type) {
	case *message.VoidResult:
		return []string{"void"}, nil
	case *message.SetKeyspaceResult:
		return []string{"keyspace " + m.Keyspace}, nil
	case *message.SchemaChangeResult:
		name := m.Keyspace
		if m.Object != "" {
			name += "." + m.Object
		}
		return []string{fmt.Sprintf("schema %v %v %s", m.ChangeType, m.Target, name)}, nil
	case *message.AlreadyExists:
		return []string{fmt.Sprintf("error %04x %s %s", uint32(m.GetErrorCode()), m.Keyspace, m.Table)}, nil
	case *message.Unavailable:
		return []string{fmt.Sprintf("error %04x %d of %d", uint32(m.GetErrorCode()), m.Alive, m.Required)}, nil
	case *message.WriteTimeout:
		return []string{fmt.Sprintf("error %04x %v", uint32(m.GetErrorCode()), m.WriteType)}, nil
	case message.Error:
		return []string{fmt.Sprintf("error %04x", uint32(m.GetErrorCode()))}, nil
	case *message.RowsResult:
		if m.Metadata.Columns != nil {
			columns = m.Metadata.Columns
		}
		return rowsLines(columns, m.Data)
	default:
		return nil, fmt.Errorf("unexpected answer %v", m)
	}
}

func rowsLines(columns []*message.ColumnMetadata, rows message.RowSet) ([]string, error) {
	lines := []string{"rows " + columnsText(columns)}
	for _, row := range rows {
		if columns == nil { // a QUERY with skipmeta: the types are unknown
			columns = make([]*message.ColumnMetadata, len(row))
			for i := range columns {
				columns[i] = &message.ColumnMetadata{Type: datatype.Blob}
			}
		}
		if len(row) != len(columns) {
			return nil, fmt.Errorf("a row of %d values for %d columns", len(row), len(columns))
		}
		values := make([]string, len(row))
		for i, v := range row {
			values[i] = render(columns[i].Type, v)
			if strings.HasPrefix(columns[i].Name, "ttl(") {
				values[i] = roundTTL(v)
			}
		}
		lines = append(lines, "  "+strings.Join(values, " | "))
	}
	return lines, nil
}

// roundTTL rounds a TTL up to fifties: it counts down while the corpus runs.
func roundTTL(v []byte) string {
	if len(v) != 4 {
		return "null"
	}
	return strconv.Itoa((int(binary.BigEndian.Uint32(v)) + 49) / 50 * 50)
}

// columnsText is "ks.t: a int, b varchar"; columns of another table carry its name.
func columnsText(columns []*message.ColumnMetadata) string {
	if len(columns) == 0 {
		return "-"
	}
	table := columns[0].Keyspace + "." + columns[0].Table
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = c.Name + " " + typeText(c.Type)
		if other := c.Keyspace + "." + c.Table; other != table {
			parts[i] = other + "." + parts[i]
		}
	}
	return table + ": " + strings.Join(parts, ", ")
}

func preparedLines(p *message.PreparedResult) []string {
	lines := []string{"prepared", "  bind " + columnsText(p.VariablesMetadata.Columns)}
	if len(p.VariablesMetadata.PkIndices) > 0 {
		pk := "  pk"
		for _, i := range p.VariablesMetadata.PkIndices {
			pk += " " + strconv.Itoa(int(i))
		}
		lines = append(lines, pk)
	}
	return append(lines, "  result "+columnsText(p.ResultMetadata.Columns))
}
