package golden

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// recordedNode responds to a case's requests as the recorded node did. mutate may
// change a response before it is sent.
func recordedNode(t *testing.T, c *Case, mutate func(*Record) []byte) Node {
	t.Helper()
	// The records of each connection, in the order the connections were opened.
	var opened [][]*Record
	at := map[string]int{}
	for _, r := range c.Records {
		if r.Kind == "connect" {
			at[r.Conn] = len(opened)
			opened = append(opened, nil)
			continue
		}
		if i, ok := at[r.Conn]; ok && (r.Request != nil || r.Kind == "event") {
			opened[i] = append(opened[i], r)
		}
	}
	for _, rs := range opened {
		slices.SortStableFunc(rs, func(a, b *Record) int { return a.Arrival - b.Arrival })
	}
	next := 0
	return Node{
		Shards:   2,
		SetClock: func(time.Time) {},
		Hook:     func(string) error { return nil },
		Dial: func(context.Context, Port) (net.Conn, error) {
			if next == len(opened) {
				return nil, errors.New("more connections than recorded")
			}
			client, server := net.Pipe()
			go serveRecorded(server, opened[next], mutate)
			next++
			return client, nil
		},
	}
}

func serveRecorded(nc net.Conn, records []*Record, mutate func(*Record) []byte) {
	defer func() { _ = nc.Close() }()
	send := func(r *Record) bool {
		response := []byte(r.Response)
		if mutate != nil {
			response = mutate(r)
		}
		_, err := nc.Write(response)
		return err == nil && len(response) > 0
	}
	for len(records) > 0 {
		// Events of other connections' statements come by themselves, the ones of the next
		// request wait for it.
		n := slices.IndexFunc(records, func(r *Record) bool { return r.Kind != "event" })
		if r := records[0]; r.Kind == "event" && (n < 0 || r.GotMS <= records[n].SentMS) {
			n = 0
		} else if !readRequest(nc, records[n]) {
			return
		}
		for _, r := range records[:n+1] {
			if !send(r) {
				return
			}
		}
		records = records[n+1:]
	}
	readRequest(nc, new(Record))
}

// readRequest reads as many bytes as the recorded request had; some are malformed. It
// responds to the player's own requests on the way.
func readRequest(nc net.Conn, r *Record) bool {
	for {
		head := make([]byte, headerSize)
		if _, err := io.ReadFull(nc, head); err != nil {
			return false
		}
		h := parseHeader(head)
		if h.Stream == askStream {
			if _, err := nc.Write(header{Version: 0x84, Stream: askStream, Opcode: opReady}.frame(nil)); err != nil {
				return false
			}
			continue
		}
		n := len(r.Request) - headerSize
		if r.Cut != "" || r.Kind == "execute" || r.Kind == "query" {
			n = h.Length
		}
		_, err := io.CopyN(io.Discard, nc, int64(n))
		return err == nil
	}
}

// The recording played against itself has no differences.
func TestPlay_RecordingAgreesWithItself(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"A", "B", "C", "D", "E", "F"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range load(t, name) {
				out, err := Play(t.Context(), recordedNode(t, c, nil), c)
				if err != nil {
					t.Fatal(err)
				}
				if len(out) == 0 {
					t.Errorf("%s: nothing was played", c.Name)
				}
				for _, o := range out {
					if o.Diff != "" {
						t.Errorf("%s %d %s: %s", c.Name, o.Record.Step, o.Record.CQL, o.Diff)
					}
				}
			}
		})
	}
}

// A changed response of a node is detected at that step.
func TestPlay_MutationIsSeen(t *testing.T) {
	t.Parallel()
	for _, c := range load(t, "D")[:1] {
		for _, r := range c.Records {
			if len(r.Response) <= headerSize {
				continue
			}
			mutant := r
			node := recordedNode(t, c, func(r *Record) []byte {
				out := slices.Clone([]byte(r.Response))
				if r == mutant {
					out[len(out)-1] ^= 1 // the last byte of a text, a number or a length
				}
				return out
			})
			out, err := Play(t.Context(), node, c)
			if err != nil {
				t.Fatal(err)
			}
			found := slices.ContainsFunc(out, func(o Outcome) bool { return o.Record == mutant && o.Diff != "" })
			if !found && !maskedTail(mutant) {
				t.Errorf("%s %d %s: a changed last byte was not seen", c.Name, r.Step, r.CQL)
			}
		}
	}
}

// maskedTail reports whether the last byte of a response is not compared: a backtrace,
// or the low bits of a time.
func maskedTail(r *Record) bool {
	a, err := Decode(r.Response, "", nil)
	if err != nil {
		return false
	}
	if strings.Contains(a.Message, "Backtrace") {
		return true
	}
	if len(a.Columns) == 0 || a.Kind != "Rows" {
		return false
	}
	name := a.Columns[len(a.Columns)-1].Name
	return strings.HasPrefix(name, "writetime") || strings.HasPrefix(name, "ttl(")
}

func TestDiff_Masks(t *testing.T) {
	t.Parallel()
	const T = 1795236982021706
	d := NewDiff(T)
	msg := func(s string) *Answer { return &Answer{Opcode: opError, Code: 0x2200, Message: s} }
	if m := d.Answers("query", msg("x Backtrace: 0x1\n 0x2"), msg("x Backtrace: 0x3")); m != "" {
		t.Errorf("backtraces are compared: %s", m)
	}
	if m := d.Answers("query", msg("x"), msg("y")); m == "" {
		t.Error("messages are not compared")
	}
	prepared := func(id string) *Answer { return &Answer{Opcode: opResult, Kind: "Prepared", ID: []byte(id)} }
	if m := d.Answers("prepare", prepared("a"), prepared("b")); m != "" {
		t.Errorf("another prepared id: %s", m)
	}
	if m := d.Answers("prepare", prepared("a"), prepared("c")); m == "" {
		t.Error("one recorded id may match two")
	}
	if got := string(d.ID([]byte("a"))); got != "b" {
		t.Errorf("ID(a) = %s, want b", got)
	}
}
