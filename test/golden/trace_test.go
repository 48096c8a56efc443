package golden

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"
)

// tracedNode responds as the node of a trace did. mutate may change a frame.
func tracedNode(tr *Trace, mutate func(*Frame) []byte) Node {
	var conns []int // in the order they were opened
	frames := map[int][]*Frame{}
	for _, f := range tr.Frames {
		switch f.Dir {
		case "open":
			conns = append(conns, f.Conn)
		case "response", "event":
			frames[f.Conn] = append(frames[f.Conn], f)
		}
	}
	return Node{
		Shards:   1,
		SetClock: func(time.Time) {},
		Dial: func(context.Context, Port) (net.Conn, error) {
			client, server := net.Pipe()
			go serveTrace(server, frames[conns[0]], mutate)
			conns = conns[1:]
			return client, nil
		},
	}
}

// serveTrace answers each request with the next response of its stream. Events come as
// soon as the frames recorded before them were sent.
func serveTrace(nc net.Conn, frames []*Frame, mutate func(*Frame) []byte) {
	defer func() { _ = nc.Close() }()
	send := func(i int) bool {
		out := []byte(frames[i].Frame)
		if mutate != nil {
			out = mutate(frames[i])
		}
		frames = slices.Delete(frames, i, i+1)
		_, err := nc.Write(out)
		return err == nil
	}
	for {
		for len(frames) > 0 && frames[0].Dir == "event" {
			if !send(0) {
				return
			}
		}
		request, err := readFrame(nc)
		if err != nil {
			return
		}
		n := slices.IndexFunc(frames, func(f *Frame) bool {
			return f.Dir == "response" && int16(f.Stream) == parseHeader(request).Stream
		})
		if n < 0 || !send(n) {
			return
		}
	}
}

func TestPlayTraces_RecordingAgreesWithItself(t *testing.T) {
	t.Parallel()
	for _, name := range driven {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr, err := LoadTrace(dir, name)
			if err != nil {
				t.Fatal(err)
			}
			out, err := PlayTraces(t.Context(), tracedNode(tr, nil), nil, tr)
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			for _, f := range tr.Frames {
				if f.Dir == "response" || f.Dir == "event" {
					want++
				}
			}
			if len(out[name]) != want {
				t.Errorf("%d outcomes, want one for each of %d frames", len(out[name]), want)
			}
			for _, o := range out[name] {
				if o.Diff != "" {
					t.Errorf("%d %s: %s", o.Record.Step, o.Record.CQL, o.Diff)
				}
			}
		})
	}
}

func TestPlayTraces_MutationIsSeen(t *testing.T) {
	t.Parallel()
	tr, err := LoadTrace(dir, "reader-2shards")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range tr.Frames {
		if f.Dir != "response" || f.Seq%40 != 0 {
			continue
		}
		out, err := PlayTraces(t.Context(), tracedNode(tr, func(g *Frame) []byte {
			if g != f {
				return g.Frame
			}
			return parseHeader(g.Frame).frame([]byte{0, 0, 0, 0, 0, 1, 'x'}) // an empty or unreadable body
		}), nil, tr)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(out[tr.Name], func(o Outcome) bool { return o.Diff != "" }) {
			t.Errorf("another answer in place of %d was not seen", f.Seq)
		}
	}
}

func TestTrace_Unrecorded(t *testing.T) {
	t.Parallel()
	writer, err := LoadTrace(dir, "writer-run")
	if err != nil {
		t.Fatal(err)
	}
	tr, err := LoadTrace(dir, "reader-2shards")
	if err != nil {
		t.Fatal(err)
	}
	statements, err := tr.Unrecorded(writer)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for i, s := range statements {
		kinds[s.CQL[:6]]++
		if i > 0 && s.At.Before(statements[i-1].At) {
			t.Errorf("statement %d is before the one before it", i)
		}
	}
	if kinds["CREATE"] != 4 || kinds["ALTER "] != 1 || kinds["INSERT"] < 30 {
		t.Errorf("statements by kind = %v, want the schema of writer-run and the rows that were read", kinds)
	}
}

func TestTrace_Join(t *testing.T) {
	t.Parallel()
	tr, err := LoadTrace(dir, "reader-switch")
	if err != nil {
		t.Fatal(err)
	}
	j, err := tr.Join()
	if err != nil {
		t.Fatal(err)
	}
	if len(j.Ring.Tokens) != 8 || !slices.IsSorted(j.Ring.Tokens) || j.Addr != "127.0.0.22" || !j.Ring.Start.After(j.At) {
		t.Errorf("Join() = %+v %+v", j, j.Ring)
	}
	if tr, err = LoadTrace(dir, "reader-run"); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Join(); err == nil {
		t.Error("a node joins in reader-run")
	}
}
