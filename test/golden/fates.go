package golden

import (
	"encoding/binary"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fate is what became of a write that failed on a node of a cluster.
type Fate struct {
	// Answer is the error, or the end of the connection.
	Answer *Answer
	// Later are the times after the request at which the write was applied, as later
	// reads of the recording show them; empty if it never was.
	Later []time.Duration
	// Now means that a replica had applied it before the error.
	Now bool
}

// Fates returns the fates of the writes that timed out, or whose connection ended, and
// the errors of reads that timed out.
func (c *Case) Fates() map[*Record]Fate {
	fates := map[*Record]Fate{}
	var writes []*keyWrite
	applied := map[row]int{} // as far as the writes up to now explain
	v := newView()
	for _, r := range order(c.Records) {
		if r.Kind == "connect" {
			v.forgetConnection(r.Conn)
		}
		if r.Request == nil {
			continue
		}
		a, err := v.answer(r.Conn, r.Kind, r.Request, r.Response)
		if err != nil {
			continue
		}
		failed := a.Closed || a.Opcode == opError && (a.Code == 0x1100 || a.Code == 0x1200)
		if failed {
			received, _ := a.Detail["received"].(int)
			fates[r] = Fate{Answer: a, Now: a.Code == 0x1100 && received > 0 && a.Detail["write_type"] != "CAS"}
		}
		for _, w := range writtenKeys(r) {
			w.failed = failed
			writes = append(writes, w)
			if !failed && a.Opcode != opError {
				applied[w.row]++
			}
		}
		for key, n := range shownKeys(a) {
			for ; applied[key] < n; applied[key]++ {
				i := slices.IndexFunc(writes, func(w *keyWrite) bool { return w.row == key && w.failed })
				if i < 0 {
					break
				}
				w := writes[i]
				w.later = append(w.later, time.Duration((r.at()-w.r.at())*float64(time.Millisecond))-time.Millisecond)
			}
		}
	}
	for i, w := range writes {
		f, ok := fates[w.r]
		if !ok || len(w.later) == 0 || f.Later != nil && !w.log {
			continue
		}
		// A batch is applied as a whole: the table with a log tells when, and how often. Its
		// other rows may have been read a moment earlier.
		f.Later = w.later
		if w.log {
			f.Later[0] = earliest(w, writes[max(i-3, 0):i])
		}
		if f.Now {
			f.Later[0] = 0
		}
		fates[w.r] = f
	}
	return fates
}

// earliest returns when a write was applied, by its log and by the rows before it.
func earliest(w *keyWrite, before []*keyWrite) time.Duration {
	at := w.later[0]
	for _, o := range before {
		if o.r == w.r && len(o.later) > 0 && (o.later[0] > w.later[0]-time.Second || o.table == w.table) {
			at = min(at, o.later[0])
		}
	}
	return at
}

// row is a key of a table; log means its groups of rows in the log.
type row struct {
	table string
	key   int32
	log   bool
}

// keyWrite is a write of one key by a record.
type keyWrite struct {
	row
	r      *Record
	failed bool
	later  []time.Duration
}

var (
	inserted = regexp.MustCompile(`INTO \w+\.(\w+) \(k[^)]*\) VALUES \((\d+|\?)`)
	changed  = regexp.MustCompile(`(?:UPDATE|DELETE FROM) \w+\.(\w+) .*WHERE k = (\d+|\?)`)
)

// writtenKeys returns the keys that a record writes, each in its table and in its log.
func writtenKeys(r *Record) (out []*keyWrite) {
	for _, m := range append(inserted.FindAllStringSubmatch(r.CQL, -1), changed.FindAllStringSubmatch(r.CQL, -1)...) {
		text := m[2]
		if text == "?" {
			text, _, _ = strings.Cut(strings.TrimPrefix(r.Values, "int:"), ",")
		}
		k, err := strconv.ParseInt(text, 10, 32)
		if err != nil || r.Kind == "prepare" {
			continue
		}
		for _, log := range []bool{false, true} {
			out = append(out, &keyWrite{row: row{m[1], int32(k), log}, r: r})
		}
	}
	return out
}

// shownKeys counts what an answer shows of each key: 1 for its row, or the groups of its
// rows in the log, which have a time each.
func shownKeys(a *Answer) map[row]int {
	out := map[row]int{}
	seen := map[string]bool{}
	k := slices.IndexFunc(a.Columns, func(c Column) bool { return c.Name == "k" })
	at := slices.IndexFunc(a.Columns, func(c Column) bool { return c.Name == "cdc$time" })
	if k < 0 || a.Kind != "Rows" {
		return out
	}
	table, log := strings.CutSuffix(a.Columns[k].Table, "_scylla_cdc_log")
	if log && at < 0 {
		return out
	}
	for _, values := range a.Rows {
		if len(values[k]) != 4 {
			continue
		}
		key := row{table, int32(binary.BigEndian.Uint32(values[k])), log}
		id := string(values[k])
		if log {
			id += string(values[at])
		}
		if !seen[id] {
			seen[id] = true
			out[key]++
		}
	}
	return out
}
