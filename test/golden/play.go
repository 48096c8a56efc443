package golden

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Node is the server that receives the requests of recordings.
type Node struct {
	// Dial connects to a port.
	Dial func(ctx context.Context, to Port) (net.Conn, error)
	// Before is called before a step is played whose recorded answer or event is want; it
	// does to the node what the rest of a recorded cluster did. Nil means nothing.
	Before func(r *Record, want *Answer) error
	// SetClock sets the node's wall clock. It never decreases within a case.
	SetClock func(time.Time)
	// Shards is the number of shards.
	Shards int
	// Hook repeats the action of a script's hook on the node; what is the hook's name
	// and text. Nil, or an error, ends the case there.
	Hook func(what string) error
	// Balance makes the node look at its tablets: a new generation, if one is due,
	// starts at the given time, and generations closed for long go. A recorded node does
	// so at times of its own. Nil means a node without tablets.
	Balance func(start time.Time) error
}

// Port is a port of a node: the ordinary one, or the shard-aware one from a source port
// that chooses Shard. Node is the name of the node of a cluster, "" for the first.
type Port struct {
	Node       string
	ShardAware bool
	Shard      int
}

// Outcome is the result of one recorded step.
type Outcome struct {
	Record *Record
	// Diff is the difference between the response and the recorded one, "" if they
	// agree.
	Diff string
	// Actual is the response, nil if none came.
	Actual *Answer
}

// How long a step waits for the node. Responses come soon, except on a busy machine.
const (
	answerWithin = time.Minute
	eventWithin  = time.Minute
)

// Play plays a case and returns an outcome for each step that has a response or is an
// event, in the order played. Statements that the script ran concurrently are played
// one by one, in the order of their responses: which one wins is not compared.
func Play(ctx context.Context, n Node, c *Case) ([]Outcome, error) {
	p := &player{
		node: n, c: c, diff: NewDiff(c.Info.T), conns: map[string]*conn{},
		recorded: newView(), actual: newView(), states: map[string][]byte{}, texts: map[string][]byte{},
		placed: map[string][]placed{}, starts: map[string][]int64{},
	}
	defer p.close()
	for _, r := range order(c.Records) {
		if err := p.step(ctx, r); err != nil {
			return p.out, fmt.Errorf("%s %d: %w", c.Name, r.Step, err)
		}
	}
	p.reportUnexpected()
	return p.out, nil
}

// order puts each event after the request it came with, since it can only be waited for
// once the request was sent, and concurrent statements in the order of their responses,
// which is that of the file.
func order(records []*Record) []*Record {
	out := make([]*Record, 0, len(records))
	var events []*Record
	for _, r := range records {
		if r.Kind == "event" {
			events = append(events, r)
			continue
		}
		// Events that came before this was sent belong to an earlier request.
		for len(events) > 0 && events[0].GotMS <= r.at() {
			out = append(out, events[0])
			events = events[1:]
		}
		out = append(out, r)
	}
	return append(out, events...)
}

type player struct {
	node     Node
	c        *Case
	diff     *Diff
	conns    map[string]*conn
	recorded *view
	actual   *view
	states   map[string][]byte // recorded paging state → actual
	texts    map[string][]byte // statement → recorded id
	out      []Outcome
	// placed contains, by connection, the positions of responses and events among all
	// its frames.
	placed map[string][]placed
	// starts contains, by text, the generations that the last recorded answer had.
	starts map[string][]int64
}

type placed struct{ recorded, actual int }

func (p *player) close() {
	for _, c := range p.conns {
		c.close()
	}
}

func (p *player) step(ctx context.Context, r *Record) error {
	p.node.SetClock(time.UnixMicro(p.c.Info.T + int64(r.at()*1000)))
	switch r.Kind {
	case "case", "mark", "polled":
		return nil
	case "hook":
		if p.node.Hook == nil {
			return fmt.Errorf("hook %q cannot be played", r.CQL)
		}
		return p.node.Hook(r.CQL)
	case "connect":
		return p.connect(ctx, r)
	case "event":
		return p.event(r)
	}
	return p.request(r)
}

func (p *player) connect(ctx context.Context, r *Record) error {
	if old := p.conns[r.Conn]; old != nil {
		old.close()
	}
	to := Port{Node: r.Options["node"], ShardAware: r.Options["port"] == "19042"}
	if source, err := strconv.Atoi(r.Options["source"]); err == nil {
		to.Shard = source % p.node.Shards
	}
	nc, err := p.node.Dial(ctx, to)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	p.conns[r.Conn] = newConn(nc)
	p.recorded.forgetConnection(r.Conn)
	p.actual.forgetConnection(r.Conn)
	return nil
}

func (p *player) request(r *Record) error {
	c := p.conns[r.Conn]
	if c == nil {
		return fmt.Errorf("no connection %q", r.Conn)
	}
	want, err := p.recorded.answer(r.Conn, r.Kind, r.Request, r.Response)
	if err != nil {
		return err
	}
	if err := errors.Join(p.balance(r, want), p.before(r, want)); err != nil {
		return err
	}
	frame, err := p.frame(r)
	if err != nil {
		return err
	}
	c.send(frame)
	a, ok := c.answer(answerWithin)
	if !ok {
		p.add(r, nil, fmt.Sprintf("no answer within %s", answerWithin))
		return nil
	}
	p.placed[r.Conn] = append(p.placed[r.Conn], placed{r.Arrival, a.at})
	got, err := p.actual.answer(r.Conn, r.Kind, frame, a.frame)
	if err != nil {
		p.add(r, nil, fmt.Sprintf("unreadable answer %x: %v", a.frame, err))
		return nil
	}
	p.learn(r, want, got)
	p.add(r, got, p.diff.Answers(r.Kind, want, got))
	return nil
}

// balance lets the node do what the recorded one did since a reader last asked for the
// generations of a table with tablets.
func (p *player) balance(r *Record, want *Answer) error {
	if len(want.Columns) != 1 || want.Columns[0].Table != "cdc_timestamps" || p.node.Balance == nil {
		return nil
	}
	var starts []int64
	for _, row := range want.Rows {
		starts = append(starts, be64(row[0]))
	}
	slices.Sort(starts)
	before := p.starts[r.CQL]
	p.starts[r.CQL] = starts
	if len(before) == 0 && len(starts) > 1 {
		before = starts[:1] // the one of CREATE
	}
	if len(before) == 0 || len(starts) == 0 || slices.Equal(before, starts) {
		return nil
	}
	for _, at := range starts {
		if at > before[len(before)-1] {
			if err := p.node.Balance(time.UnixMilli(at)); err != nil {
				return err
			}
		}
	}
	p.node.SetClock(time.UnixMicro(p.c.Info.T + int64(r.at()*1000)))
	if starts[0] != before[0] {
		return p.node.Balance(time.Time{})
	}
	return nil
}

func (p *player) add(r *Record, got *Answer, diff string) {
	p.out = append(p.out, Outcome{r, diff, got})
}

// frame returns the request as it is to be sent in this run.
func (p *player) frame(r *Record) ([]byte, error) {
	frame := []byte(r.Request)
	if r.Cut != "" {
		var err error
		if frame, err = restore(r, func(text string) []byte { return p.texts[text] }); err != nil {
			return nil, err
		}
	}
	compression := p.recorded.compression[r.Conn]
	q, err := parseRequest(frame, compression, p.recorded.metadataIDs[r.Conn])
	if err != nil {
		return frame, nil // no statement, or malformed on purpose
	}
	q.withoutUserTypes()
	q.body = p.diff.Own(q.body)
	return q.rewrite(p.diff.ID, func(state []byte) []byte {
		if s, ok := p.states[string(state)]; ok {
			return s
		}
		return state
	}, compression)
}

// learn records which ids and paging states of this run correspond to recorded ones.
func (p *player) learn(r *Record, want, got *Answer) {
	if want.Kind == "Prepared" {
		p.texts[r.CQL] = want.ID
	}
	if want.PagingState != nil && got.PagingState != nil {
		p.states[string(want.PagingState)] = got.PagingState
	}
}

// event waits for a recorded event, and checks its order relative to the responses and
// the other events on its connection.
func (p *player) event(r *Record) error {
	c := p.conns[r.Conn]
	want, err := Decode(r.Response, p.recorded.compression[r.Conn], nil)
	if c == nil || err != nil {
		p.add(r, nil, fmt.Sprintf("no connection, or unreadable recording: %v", err))
		return nil
	}
	if err := p.before(r, want); err != nil {
		return err
	}
	var got *Answer
	a, ok := c.eventByNow(eventWithin, func(frame []byte) bool {
		got, err = Decode(frame, p.actual.compression[r.Conn], nil)
		return err == nil && p.diff.Answers(r.Kind, want, got) == ""
	})
	if !ok || a.frame == nil {
		p.add(r, nil, "no such event: "+strings.Join(want.Change, " "))
		return nil
	}
	diff := ""
	for _, other := range p.placed[r.Conn] {
		if (r.Arrival < other.recorded) != (a.at < other.actual) {
			diff = fmt.Sprintf("event %s came on the wrong side of the answer to its statement, or of another event", strings.Join(want.Change, " "))
		}
	}
	p.placed[r.Conn] = append(p.placed[r.Conn], placed{r.Arrival, a.at})
	p.add(r, got, diff)
	return nil
}

func (p *player) before(r *Record, want *Answer) error {
	if p.node.Before == nil {
		return nil
	}
	return p.node.Before(r, want)
}

// reportUnexpected reports events that came and were not recorded.
func (p *player) reportUnexpected() {
	for name, c := range p.conns {
		for _, a := range c.leftEvents() {
			text := "unreadable"
			if got, err := Decode(a.frame, p.actual.compression[name], nil); err == nil {
				text = strings.Join(got.Change, " ")
			}
			p.out = append(p.out, Outcome{
				Record: &Record{Case: p.c.Name, Kind: "event", Conn: name},
				Diff:   "an event that was not recorded: " + text,
			})
		}
	}
}
