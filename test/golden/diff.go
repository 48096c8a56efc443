package golden

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/test/cqlvalue"
)

// Diff compares actual responses with recorded ones. Values that cannot be equal are
// compared as far as possible:
//
//   - times that a server's clock gave, in timeuuids, timestamps and numbers,
//     may be a quarter of a second apart; random bits of timeuuids are ignored
//   - prepared ids may differ, but one for one; paging states only have to
//     be present or absent
//   - schema versions, table ids, addresses, ports, the list of features and
//     a build's versions are ignored
//   - streams of tablets are compared by their tokens, and starts of their generations
//     may be a second apart; later requests name those of this run
//   - random uuids are ignored where the column is uuid()
//   - rows of CDC logs may be in another order, since random bits decide it
//   - TTL(...) may be one second off; the part of a message after
//     " Backtrace:" is ignored
type Diff struct {
	// is the case's start, µs since 1970; only values within a day of it count as times
	// of the server's clock.
	T int64

	ids map[string]string // recorded prepared id → actual
	// own are values that a node chooses: streams of tablets and starts of generations.
	own own
}

// tolerance is the largest difference between clocks.
const tolerance = 250 * time.Millisecond

// NewDiff returns a Diff for the responses of a case that began at t.
func NewDiff(t int64) *Diff { return &Diff{T: t, ids: map[string]string{}} }

// Answers describes the difference between got and the recorded want, "" if there is
// none. kind is the record's kind.
func (d *Diff) Answers(kind string, want, got *Answer) string {
	if want.Closed != got.Closed {
		return fmt.Sprintf("connection closed %t, recorded %t", got.Closed, want.Closed)
	}
	if want.Closed {
		return ""
	}
	want, got = withoutFieldNumbers(want), withoutFieldNumbers(got)
	if w, g := opcodeNames[want.Opcode]+" "+want.Kind, opcodeNames[got.Opcode]+" "+got.Kind; w != g {
		return fmt.Sprintf("%s%s, recorded %s%s", g, errorText(got), w, errorText(want))
	}
	for _, c := range []struct {
		what      string
		want, got any
	}{
		{"protocol version", want.Version, got.Version},
		{"header flags", want.HeaderFlags, got.HeaderFlags},
		{"stream", want.Stream, got.Stream},
		{"tracing id", want.TracingID != nil, got.TracingID != nil},
		{"warnings", want.Warnings, got.Warnings},
		{"custom payload", want.Payload, got.Payload},
		{"error code", fmt.Sprintf("%04X", want.Code), fmt.Sprintf("%04X", got.Code)},
		{"keyspace", want.Keyspace, got.Keyspace},
		{"result flags", want.ResultFlags, got.ResultFlags},
		{"bind flags", want.BindFlags, got.BindFlags},
		{"partition key indexes", want.PK, got.PK},
		{"bind columns", columnNames(want.Bind), columnNames(got.Bind)},
		{"columns", columnNames(want.Columns), columnNames(got.Columns)},
	} {
		if !reflect.DeepEqual(c.want, c.got) {
			return fmt.Sprintf("%s %v%s, recorded %v%s", c.what, c.got, errorText(got), c.want, errorText(want))
		}
	}
	if m := d.messages(want, got); m != "" {
		return m
	}
	if m := d.diffSupported(want.Supported, got.Supported); m != "" {
		return m
	}
	if w, g := d.change(want), d.change(got); !slices.Equal(w, g) {
		return fmt.Sprintf("change %q, recorded %q", g, w)
	}
	if want.MetadataID != nil || got.MetadataID != nil {
		if len(want.MetadataID) != len(got.MetadataID) {
			return fmt.Sprintf("metadata id %x, recorded %x", got.MetadataID, want.MetadataID)
		}
		d.ids[string(want.MetadataID)] = string(got.MetadataID)
	}
	if want.Kind == "Prepared" {
		return d.id(want.ID, got.ID)
	}
	if kind == "log" && want.Kind == "Rows" {
		return d.log(want, got)
	}
	return d.rows(want, got)
}

// withoutFieldNumbers returns an answer without the columns of a CDC log that contain the
// numbers of a user-defined type's deleted fields: its columns are tuples here, of which no
// parts are deleted (see request.withoutUserTypes). No other column is a set of smallint.
func withoutFieldNumbers(a *Answer) *Answer {
	numbers := func(c Column) bool {
		return c.Type.Kind == cqltype.Set && c.Type.Elem.Kind == cqltype.SmallInt && strings.HasPrefix(c.Name, "cdc$deleted_elements_")
	}
	i := slices.IndexFunc(a.Columns, numbers)
	if i < 0 {
		return a
	}
	out := *a
	out.Columns = slices.Delete(slices.Clone(a.Columns), i, i+1)
	out.Rows = nil
	for _, row := range a.Rows {
		out.Rows = append(out.Rows, slices.Delete(slices.Clone(row), i, i+1))
	}
	return &out
}

func errorText(a *Answer) string {
	if a.Opcode != opError {
		return ""
	}
	return fmt.Sprintf("(%04X %s)", a.Code, a.Message)
}

var (
	backtrace  = regexp.MustCompile(`(?s) Backtrace: .*`)
	clockTexts = regexp.MustCompile(`\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(\.\d{9})?`)
	tableIDs   = regexp.MustCompile(`streams for table [0-9a-f-]{36}`)
)

func (d *Diff) messages(want, got *Answer) string {
	w, g := d.message(string(d.Own([]byte(want.Message)))), got.Message
	for rec, act := range d.ids {
		w = strings.ReplaceAll(w, hex.EncodeToString([]byte(rec)), hex.EncodeToString([]byte(act)))
	}
	if g = d.message(g); w != g {
		return fmt.Sprintf("message %q, recorded %q", g, w)
	}
	wd, gd := want.Detail, got.Detail
	if id, ok := wd["id"].(string); ok {
		raw, _ := hex.DecodeString(id)
		if act, ok := d.ids[string(raw)]; ok {
			id = hex.EncodeToString([]byte(act))
		}
		wd = map[string]any{"id": id}
	}
	if !reflect.DeepEqual(wd, gd) {
		return fmt.Sprintf("error detail %v, recorded %v", gd, wd)
	}
	return ""
}

func (d *Diff) message(s string) string {
	s = tableIDs.ReplaceAllString(s, "streams for table <id>")
	return clockTexts.ReplaceAllString(backtrace.ReplaceAllString(s, ""), "<time>")
}

// anyValue are the keys of SUPPORTED whose value differs between runs, and that of the
// compressions, of which the server has none.
var anyValue = []string{"SCYLLA_SHARD_AWARE_PORT", "SCYLLA_SHARD", "COMPRESSION"}

func (d *Diff) diffSupported(want, got map[string][]string) string {
	for k, w := range want {
		g, ok := got[k]
		if !ok || !slices.Equal(w, g) && !slices.Contains(anyValue, k) {
			return fmt.Sprintf("SUPPORTED %s %q, recorded %q", k, g, w)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			return fmt.Sprintf("SUPPORTED has %s, not recorded", k)
		}
	}
	return ""
}

// change removes the address of a topology or status event.
func (d *Diff) change(a *Answer) []string {
	if a.Opcode == opEvent && a.Kind != "SCHEMA_CHANGE" {
		return a.Change[:1]
	}
	return a.Change
}

func (d *Diff) id(want, got []byte) string {
	if act, ok := d.ids[string(want)]; ok && act != string(got) {
		return fmt.Sprintf("prepared id %x where the recording has an id that was %x before", got, act)
	}
	d.ids[string(want)] = string(got)
	return ""
}

// ID returns the actual prepared id for a recorded one, which is itself when no PREPARE
// returned it.
func (d *Diff) ID(recorded []byte) []byte {
	if act, ok := d.ids[string(recorded)]; ok {
		return []byte(act)
	}
	return recorded
}

func (d *Diff) rows(want, got *Answer) string {
	cols := want.Columns
	if len(want.Rows) != len(got.Rows) {
		return fmt.Sprintf("%d rows, recorded %d%s", len(got.Rows), len(want.Rows), firstRows(cols, want, got))
	}
	diff := ""
	for i := range want.Rows {
		if diff = d.row(cols, want.Rows[i], got.Rows[i]); diff != "" {
			diff = fmt.Sprintf("row %d: %s", i, diff)
			break
		}
	}
	if diff == "" || len(cols) == 0 || !strings.HasSuffix(cols[0].Table, "_scylla_cdc_log") && cols[0].Table != "cdc_streams" {
		return diff
	}
	// A log may have any order. Streams are in the order of signed tokens on a node, and
	// in that of their bytes here.
	left := slices.Clone(got.Rows)
	for _, w := range want.Rows {
		i := slices.IndexFunc(left, func(g [][]byte) bool { return d.row(cols, w, g) == "" })
		if i < 0 {
			return diff
		}
		left = slices.Delete(left, i, i+1)
	}
	return ""
}

// firstRows shows some of the rows of two responses whose numbers differ.
func firstRows(cols []Column, want, got *Answer) string {
	show := func(a *Answer) string {
		var parts []string
		for _, row := range a.Rows[:min(len(a.Rows), 3)] {
			parts = append(parts, formatRow(cols, row))
		}
		return strings.Join(parts, " ")
	}
	return fmt.Sprintf("\n\t\tgot      %s\n\t\trecorded %s", show(got), show(want))
}

func formatRow(cols []Column, row [][]byte) string {
	var parts []string
	for i, v := range row {
		if i < len(cols) {
			s := cqlvalue.Format(cols[i].Type, v)
			parts = append(parts, s[:min(len(s), 80)])
		}
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// log compares two answers to SELECT * of a log in their masked order.
func (d *Diff) log(want, got *Answer) string {
	w, err := orderLog(want)
	if err != nil {
		return err.Error()
	}
	g, err := orderLog(got)
	if err != nil {
		return err.Error()
	}
	for i := range min(len(w), len(g)) {
		m := d.row(want.Columns, w[i].row, g[i].row)
		if m == "" && (w[i].time != g[i].time || w[i].group != g[i].group) {
			m = fmt.Sprintf("time %d group %d, recorded %d, %d", g[i].time, g[i].group, w[i].time, w[i].group)
		}
		if m != "" {
			return fmt.Sprintf("log row %d: %s\n\t\tgot      %s\n\t\trecorded %s", i, m,
				maskLogRow(want.Columns, g[i].row), maskLogRow(want.Columns, w[i].row))
		}
	}
	if len(w) != len(g) {
		more, verb := w, "is missing"
		if len(g) > len(w) {
			more, verb = g, "is too many"
		}
		return fmt.Sprintf("%d log rows, recorded %d; the first that %s: %s", len(g), len(w), verb,
			maskLogRow(want.Columns, more[min(len(w), len(g))].row))
	}
	return ""
}

func (d *Diff) row(cols []Column, want, got [][]byte) string {
	if len(want) != len(got) {
		return fmt.Sprintf("%d columns, recorded %d", len(got), len(want))
	}
	for i := range want {
		if bytes.Equal(want[i], got[i]) && (want[i] == nil) == (got[i] == nil) {
			continue
		}
		if i >= len(cols) {
			return fmt.Sprintf("column %d %x, recorded %x", i, got[i], want[i])
		}
		if !d.value(cols[i], cols[i].Type, want[i], got[i]) {
			return fmt.Sprintf("%s %s, recorded %s", cols[i].Name, cqlvalue.Format(cols[i].Type, got[i]), cqlvalue.Format(cols[i].Type, want[i]))
		}
	}
	return ""
}
