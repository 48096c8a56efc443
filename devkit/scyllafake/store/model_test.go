package store

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// model is the rules of reconciliation written down as plainly as can be: it
// keeps every write for ever and works each answer out anew.
type model struct{ writes []*Mutation }

// version is one write of one cell.
type version struct{ Cell }

// newest picks the survivor: highest timestamp, dead, with TTL, later expiry,
// smaller TTL, larger value.
func newest(vs []version) version {
	flag := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return slices.MaxFunc(vs, func(a, b version) int {
		return cmp.Or(
			cmp.Compare(a.Timestamp, b.Timestamp),
			cmp.Compare(flag(a.Dead), flag(b.Dead)),
			cmp.Compare(flag(a.TTL > 0), flag(b.TTL > 0)),
			cmp.Compare(a.Expiry, b.Expiry),
			cmp.Compare(b.TTL, a.TTL),
			cmp.Compare(string(a.Value), string(b.Value)),
		)
	})
}

// tokenOrder sorts partition keys as a scan returns them.
func tokenOrder(a, b string) int {
	return cmp.Or(cmp.Compare(testToken(a), testToken(b)), cmp.Compare(a, b))
}

func num(v []byte) int { return int(int32(binary.BigEndian.Uint32(v))) }

// tableOrder compares clustering values, or prefixes of them, in table order:
// c1 ascending, c2 descending.
func tableOrder(a, b [][]byte) int {
	for i := range min(len(a), len(b)) {
		if c := cmp.Compare(num(a[i]), num(b[i])); c != 0 {
			if i == 1 {
				return -c
			}
			return c
		}
	}
	return 0
}

func (r Range) holds(row [][]byte) bool {
	start, end := tableOrder(row, r.Start.Prefix), tableOrder(row, r.End.Prefix)
	return (start > 0 || start == 0 && r.Start.Inclusive) && (end < 0 || end == 0 && r.End.Inclusive)
}

// dump answers a scan of all partitions, in the form of the tests' dump.
func (m *model) dump(now int64, ranges []Range, reverse bool) string {
	keys := map[string]bool{}
	for _, w := range m.writes {
		keys[string(w.Key)] = true
	}
	var out strings.Builder
	for _, key := range slices.SortedFunc(maps.Keys(keys), tokenOrder) {
		static := m.row(key, nil, now)
		var rows []string
		for _, c := range m.clusterings(key) {
			wanted := ranges == nil || slices.ContainsFunc(ranges, func(r Range) bool { return r.holds(c) })
			if row := m.row(key, c, now); wanted && row != nil {
				rows = append(rows, " "+show(row)+"\n")
			}
		}
		if reverse {
			slices.Reverse(rows)
		}
		if static == nil && rows == nil {
			continue
		}
		fmt.Fprintf(&out, "%s@%d", key, testToken(key))
		if static != nil {
			out.WriteString(" static" + show(static))
		}
		out.WriteString("\n" + strings.Join(rows, ""))
	}
	return out.String()
}

func (m *model) clusterings(key string) [][][]byte {
	var out [][][]byte
	for _, w := range m.writes {
		for _, r := range w.Rows {
			if string(w.Key) == key {
				out = append(out, r.Clustering)
			}
		}
	}
	slices.SortFunc(out, tableOrder)
	return slices.CompactFunc(out, func(a, b [][]byte) bool { return tableOrder(a, b) == 0 })
}

// row is one row as it shows, or nil; a nil clustering asks for the static row.
func (m *model) row(key string, clustering [][]byte, now int64) *Row {
	type place struct {
		id   int32
		path string
	}
	const markerID = -1
	shadow := int64(never)
	tombs := map[int32]int64{}
	cells := map[place][]version{}
	cover := func(d Deletion) {
		if d.Set {
			shadow = max(shadow, d.Timestamp)
		}
	}
	for _, w := range m.writes {
		if string(w.Key) != key {
			continue
		}
		cover(w.Deleted)
		var parts []*Row
		if clustering == nil && w.Static != nil {
			parts = []*Row{w.Static}
		}
		for i := range w.Rows {
			if clustering != nil && tableOrder(w.Rows[i].Clustering, clustering) == 0 {
				parts = append(parts, &w.Rows[i])
			}
		}
		for _, r := range w.Ranges {
			if clustering != nil && r.holds(clustering) {
				cover(r.Deletion)
			}
		}
		for _, r := range parts {
			cover(r.Deleted)
			if r.Marker != nil {
				cells[place{id: markerID}] = append(cells[place{id: markerID}], version{*r.Marker})
			}
			for _, c := range r.Columns {
				if c.Cell != nil {
					cells[place{id: c.ID}] = append(cells[place{id: c.ID}], version{*c.Cell})
				}
				if c.Deleted.Set {
					ts, ok := tombs[c.ID]
					if !ok || c.Deleted.Timestamp > ts {
						tombs[c.ID] = c.Deleted.Timestamp
					}
				}
				for _, e := range c.Elements {
					p := place{c.ID, string(e.Path)}
					cells[p] = append(cells[p], version{e.Cell})
				}
			}
		}
	}
	row := &Row{Clustering: clustering}
	places := slices.SortedFunc(maps.Keys(cells), func(a, b place) int {
		if a.id != b.id || a.path == "" {
			return cmp.Compare(a.id, b.id)
		}
		return cmp.Compare(num([]byte(a.path)), num([]byte(b.path)))
	})
	for _, p := range places {
		c := newest(cells[p]).Cell
		under := shadow
		if ts, ok := tombs[p.id]; ok {
			under = max(under, ts)
		}
		switch {
		case c.Dead || c.Timestamp <= under || c.TTL > 0 && now >= c.Expiry:
		case p.id == markerID:
			row.Marker = &c
		case p.path == "":
			row.Columns = append(row.Columns, ColumnData{ID: p.id, Cell: &c})
		default:
			if n := len(row.Columns); n == 0 || row.Columns[n-1].ID != p.id {
				row.Columns = append(row.Columns, ColumnData{ID: p.id})
			}
			d := &row.Columns[len(row.Columns)-1]
			d.Elements = append(d.Elements, Element{[]byte(p.path), c})
		}
	}
	if row.Marker == nil && row.Columns == nil {
		return nil
	}
	return row
}
