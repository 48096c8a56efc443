package golden

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Trace is a recording of one client's own frames and the time of its beginning.
type Trace struct {
	Name   string
	Start  time.Time
	Frames []*Frame
}

// LoadTrace reads a recording of frames. It began at its first timestamp: the drivers
// put one on every request.
func LoadTrace(dir, name string) (*Trace, error) {
	frames, err := LoadFrames(dir, name)
	if err != nil {
		return nil, err
	}
	for _, f := range frames {
		var d struct {
			Timestamp int64 `json:"timestamp"`
		}
		if f.Dir == "request" && json.Unmarshal(f.Decoded, &d) == nil && d.Timestamp > 0 {
			return &Trace{name, time.UnixMicro(d.Timestamp - int64(f.AtMS*1000)), frames}, nil
		}
	}
	return nil, fmt.Errorf("%s: no request carries a timestamp", name)
}

// PlayTraces plays recordings of concurrent clients against a node: each request at its
// time, on its own connection and with its own stream id. Each response is compared at
// its recorded position, so that as many requests are in progress as in the recording.
// others are actions of clients without a trace. The outcomes come by name.
func PlayTraces(ctx context.Context, n Node, others []Statement, traces ...*Trace) (map[string][]Outcome, error) {
	start := slices.MinFunc(traces, func(a, b *Trace) int { return a.Start.Compare(b.Start) }).Start
	p := &tracePlayer{
		node: n, diff: NewDiff(start.UnixMicro()), conns: map[string]*conn{}, recorded: newView(), actual: newView(),
		states: map[string][]byte{}, pending: map[string]pending{}, out: map[string][]Outcome{},
	}
	defer func() {
		for _, c := range p.conns {
			c.close()
		}
	}()
	type item struct {
		at    time.Time
		other *Statement
		trace *Trace
		frame *Frame
	}
	var items []item
	for i := range others {
		items = append(items, item{at: others[i].At, other: &others[i]})
	}
	for _, t := range traces {
		for _, f := range t.Frames {
			items = append(items, item{at: t.at(f), trace: t, frame: f})
		}
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	for _, it := range items {
		n.SetClock(it.at)
		if it.other != nil {
			if err := p.do(ctx, *it.other); err != nil {
				return p.out, err
			}
			continue
		}
		if err := p.play(ctx, it.trace.Name, it.frame); err != nil {
			return p.out, fmt.Errorf("%s %d: %w", it.trace.Name, it.frame.Seq, err)
		}
	}
	return p.out, nil
}

type tracePlayer struct {
	node     Node
	diff     *Diff
	conns    map[string]*conn
	recorded *view
	actual   *view
	states   map[string][]byte
	pending  map[string]pending // by connection and stream
	out      map[string][]Outcome
}

// do executes a statement of a client without a trace.
func (p *tracePlayer) do(ctx context.Context, s Statement) error {
	if s.Node != nil {
		return s.Node()
	}
	const name = "others"
	ask := func(frame []byte) error {
		p.conns[name].send(frame)
		a, ok := p.conns[name].answer(answerWithin)
		if !ok || a.frame == nil {
			return fmt.Errorf("no answer to %s", s.CQL)
		}
		got, err := Decode(a.frame, "", nil)
		if err == nil && got.Opcode == opError {
			err = fmt.Errorf("%s: %04X %s", s.CQL, got.Code, got.Message)
		}
		return err
	}
	if p.conns[name] == nil {
		nc, err := p.node.Dial(ctx, Port{})
		if err != nil {
			return err
		}
		p.conns[name] = newConn(nc)
		if err := ask(startupFrame()); err != nil {
			return err
		}
	}
	return ask(s.frame())
}

// pending is a request that was sent.
type pending struct {
	kind           string
	recorded, sent []byte
	record         *Record
}

func (p *tracePlayer) play(ctx context.Context, name string, f *Frame) error {
	conn := fmt.Sprintf("%s/%d", name, f.Conn)
	slot := fmt.Sprintf("%s/%d", conn, f.Stream)
	switch f.Dir {
	case "open":
		nc, err := p.node.Dial(ctx, Port{})
		if err != nil {
			return err
		}
		p.conns[conn] = newConn(nc)
	case "close":
		p.conns[conn].close()
	case "request":
		q := p.send(conn, f)
		p.pending[slot] = q
		p.conns[conn].send(q.sent)
	case "response":
		q := p.pending[slot]
		delete(p.pending, slot)
		p.response(name, conn, q, f)
	case "event":
		p.event(name, conn, f)
	}
	return nil
}

var requestKinds = map[byte]string{
	opStartup: "startup", opOptions: "options", opRegister: "register", opQuery: "query",
	opPrepare: "prepare", opExecute: "execute", opBatch: "batch",
}

func (p *tracePlayer) send(conn string, f *Frame) pending {
	var d struct {
		CQL   string   `json:"cql"`
		Batch []string `json:"batch"`
	}
	_ = json.Unmarshal(f.Decoded, &d) //nolint:errcheck // only for messages
	q := pending{
		kind: requestKinds[parseHeader(f.Frame).Opcode], recorded: f.Frame, sent: f.Frame,
		record: &Record{Step: f.Seq, Conn: conn, CQL: d.CQL + strings.Join(d.Batch, "; ")},
	}
	q.record.Kind = q.kind
	parsed, err := parseRequest(f.Frame, "", p.recorded.metadataIDs[conn])
	if err != nil {
		return q
	}
	parsed.rewriteCreate(noImages.Replace)
	parsed.body = p.diff.Own(parsed.body)
	if sent, err := parsed.rewrite(p.diff.ID, func(s []byte) []byte {
		if actual, ok := p.states[string(s)]; ok {
			return actual
		}
		return s
	}, ""); err == nil {
		q.sent = sent
	}
	return q
}

func (p *tracePlayer) response(name, conn string, q pending, f *Frame) {
	add := func(got *Answer, diff string) {
		p.out[name] = append(p.out[name], Outcome{q.record, diff, got})
	}
	want, err := p.recorded.answer(conn, q.kind, q.recorded, f.Frame)
	if err != nil {
		add(nil, fmt.Sprintf("unreadable recording: %v", err))
		return
	}
	a, ok := p.conns[conn].answerTo(int16(f.Stream), answerWithin)
	if !ok {
		add(nil, fmt.Sprintf("no answer within %s", answerWithin))
		return
	}
	got, err := p.actual.answer(conn, q.kind, q.sent, a.frame)
	if err != nil {
		add(nil, fmt.Sprintf("unreadable answer %x: %v", a.frame, err))
		return
	}
	if want.PagingState != nil && got.PagingState != nil {
		p.states[string(want.PagingState)] = got.PagingState
	}
	add(got, p.diff.Answers(q.kind, want, got))
}

func (p *tracePlayer) event(name, conn string, f *Frame) {
	want, err := Decode(f.Frame, "", nil)
	r := &Record{Step: f.Seq, Conn: conn, Kind: "event"}
	if err != nil {
		p.out[name] = append(p.out[name], Outcome{r, err.Error(), nil})
		return
	}
	var got *Answer
	a, ok := p.conns[conn].event(eventWithin, func(frame []byte) bool {
		got, err = Decode(frame, "", nil)
		return err == nil && p.diff.Answers("event", want, got) == ""
	})
	diff := ""
	if !ok || a.frame == nil {
		diff = "no such event: " + strings.Join(want.Change, " ")
	}
	p.out[name] = append(p.out[name], Outcome{r, diff, got})
}
