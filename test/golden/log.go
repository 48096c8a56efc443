package golden

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/test/cqlvalue"
)

// logRow is a row of a CDC log with the numbers of its time and of its group, the rows
// that share stream and cdc$time.
type logRow struct {
	time, group int
	row         [][]byte
}

// orderLog numbers the rows of a SELECT * of a CDC log: times in ascending order,
// groups by time and then by content, since random bits and tokens determine the order
// of groups of one time.
func orderLog(a *Answer) ([]logRow, error) {
	at := map[string]int{}
	for i, c := range a.Columns {
		at[c.Name] = i
	}
	for _, name := range []string{"cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation"} {
		if _, ok := at[name]; !ok {
			return nil, fmt.Errorf("the log has no column %s", name)
		}
	}
	type group struct {
		time  uint64
		rows  [][][]byte
		lines []string
	}
	groups := map[string]*group{}
	var order []*group
	for _, row := range a.Rows {
		id := row[at["cdc$time"]]
		key := string(row[at["cdc$stream_id"]]) + string(id)
		g := groups[key]
		if g == nil {
			g = &group{time: uuidTicks(id)}
			groups[key] = g
			order = append(order, g)
		}
		g.rows = append(g.rows, row)
		g.lines = append(g.lines, maskLogRow(a.Columns, row))
	}
	slices.SortStableFunc(order, func(x, y *group) int {
		return cmp.Or(cmp.Compare(x.time, y.time), slices.Compare(x.lines, y.lines))
	})
	var out []logRow
	times := -1
	for i, g := range order {
		if i == 0 || g.time != order[i-1].time {
			times++
		}
		for _, row := range g.rows {
			out = append(out, logRow{times, i, row})
		}
	}
	return out, nil
}

// MaskLog converts the rows of a SELECT * of a CDC log to the form of the recordings'
// "log": times and groups numbered, stream ids and random bits omitted, so that two
// runs of the same statements give the same lines.
func MaskLog(a *Answer) ([]string, error) {
	rows, err := orderLog(a)
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprintf("t%d u%d %s", r.time, r.group, maskLogRow(a.Columns, r.row)))
	}
	return out, err
}

func maskLogRow(cols []Column, row [][]byte) string {
	var b strings.Builder
	text := map[string]string{}
	for i, c := range cols {
		text[c.Name] = cqlvalue.Format(c.Type, row[i])
	}
	fmt.Fprintf(&b, "seq %s op %s", text["cdc$batch_seq_no"], text["cdc$operation"])
	for i, c := range cols {
		switch c.Name {
		case "cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation":
			continue
		}
		if row[i] != nil {
			fmt.Fprintf(&b, " %s=%s", c.Name, cqlvalue.Format(c.Type, row[i]))
		}
	}
	return b.String()
}

// uuidTicks returns the time of a version 1 uuid in 100 ns units, 0 for other bytes.
func uuidTicks(v []byte) uint64 {
	if len(v) != 16 {
		return 0
	}
	hi := uint64(be64(v))
	return hi>>32 | hi>>16&0xffff<<32 | hi&0x0fff<<48
}

// isTimeUUID reports whether v is a version 1 uuid.
func isTimeUUID(t *cqltype.Type, v []byte) bool {
	return (t.Kind == cqltype.TimeUUID || t.Kind == cqltype.UUID) && len(v) == 16 && v[6]>>4 == 1
}
