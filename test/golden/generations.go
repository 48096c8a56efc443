package golden

import (
	"fmt"
	"slices"
	"time"
)

// Generation is a CDC generation of a table with tablets, as a trace shows it.
type Generation struct {
	Start time.Time
	// Asked is when the request was sent whose response has it first.
	Asked time.Time
}

// Generations returns the generations that the trace read from system.cdc_timestamps, in
// the order of their starts.
func (t *Trace) Generations() ([]Generation, error) {
	var out []Generation
	v := newView()
	requests := map[string]*Frame{} // by connection and stream
	for _, f := range t.Frames {
		conn := fmt.Sprint(f.Conn)
		slot := fmt.Sprintf("%s/%d", conn, f.Stream)
		if f.Dir == "request" {
			requests[slot] = f
		}
		q := requests[slot]
		if f.Dir != "response" || q == nil {
			continue
		}
		a, err := v.answer(conn, requestKinds[parseHeader(q.Frame).Opcode], q.Frame, f.Frame)
		if err != nil {
			return nil, fmt.Errorf("%s %d: %w", t.Name, f.Seq, err)
		}
		if len(a.Columns) != 1 || a.Columns[0].Table != "cdc_timestamps" {
			continue
		}
		for _, row := range a.Rows {
			start := time.UnixMilli(be64(row[0]))
			if !slices.ContainsFunc(out, func(g Generation) bool { return g.Start.Equal(start) }) {
				out = append(out, Generation{start, t.at(q)})
			}
		}
	}
	slices.SortFunc(out, func(a, b Generation) int { return a.Start.Compare(b.Start) })
	return out, nil
}

// Changed returns when the first event about a table came.
func (t *Trace) Changed(keyspace, table string) (time.Time, error) {
	for _, f := range t.Frames {
		if f.Dir != "event" {
			continue
		}
		a, err := Decode(f.Frame, "", nil)
		if err != nil {
			return time.Time{}, err
		}
		if slices.Equal(a.Change, []string{"UPDATED", "TABLE", keyspace, table}) {
			return t.at(f), nil
		}
	}
	return time.Time{}, fmt.Errorf("%s: no event about %s.%s", t.Name, keyspace, table)
}
