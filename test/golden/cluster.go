package golden

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Generations returns the generations with vnodes that a case of a cluster shows, by
// start. Where it does not show the streams, each key of a log's row gets the stream of
// that row; without such rows the streams are those of the generation before or after. There
// is at least one generation.
func (c *Case) Generations() []*Ring {
	g := &generations{rings: map[int64]*Ring{}}
	v := newView()
	for _, r := range c.Records {
		if r.Kind == "connect" {
			v.forgetConnection(r.Conn)
		}
		if r.Response == nil {
			continue
		}
		if a, err := v.answer(r.Conn, r.Kind, r.Request, r.Response); err == nil && a.Kind == "Rows" {
			for _, row := range a.Rows {
				g.learn(a.Columns, row)
			}
		}
	}
	return g.finish()
}

type generations struct {
	rings  map[int64]*Ring // by start, ms
	hostID [16]byte
	logged []loggedStream
}

// loggedStream is the stream of a key at a time.
type loggedStream struct {
	at     time.Time
	token  int64
	stream []byte
}

func (g *generations) learn(cols []Column, row [][]byte) {
	value := func(table, name string) []byte {
		for i, c := range cols {
			if c.Table == table && c.Name == name {
				return row[i]
			}
		}
		return nil
	}
	if v := value("cdc_generation_timestamps", "time"); v != nil {
		g.ring(be64(v))
	}
	if v, id := value("cdc_local", "streams_timestamp"), value("cdc_local", "uuid"); v != nil && id != nil {
		g.ring(be64(v)).GenerationID = uuid.UUID(id)
	}
	if v, end := value("cdc_streams_descriptions_v2", "time"), value("cdc_streams_descriptions_v2", "range_end"); v != nil && end != nil {
		r, token := g.ring(be64(v)), be64(end)
		if !slices.Contains(r.Tokens, token) {
			r.Tokens = append(r.Tokens, token)
			r.Streams = append(r.Streams, slices.Collect(cqltype.Elements(value("cdc_streams_descriptions_v2", "streams"))))
		}
	}
	if id := value("local", "host_id"); id != nil && g.hostID == [16]byte{} {
		g.hostID = [16]byte(id)
	}
	var stream, at, key []byte
	for i, c := range cols {
		switch c.Name {
		case "cdc$stream_id":
			stream = row[i]
		case "cdc$time":
			at = row[i]
		case "k":
			key = row[i]
		}
	}
	if stream != nil && at != nil && key != nil {
		g.logged = append(g.logged, loggedStream{time.UnixMicro(cqltype.TimeUUIDMicros(at)), catalog.Murmur3Token(key), stream})
	}
}

func (g *generations) ring(start int64) *Ring {
	if g.rings[start] == nil {
		g.rings[start] = &Ring{Start: time.UnixMilli(start)}
	}
	return g.rings[start]
}

func (g *generations) finish() []*Ring {
	var out []*Ring
	for _, r := range g.rings {
		r.HostID = g.hostID
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *Ring) int { return a.Start.Compare(b.Start) })
	if len(out) == 0 {
		out = append(out, &Ring{})
	}
	// The first vnode's streams look like those of tablets, the others' do not.
	if !slices.ContainsFunc(g.logged, func(l loggedStream) bool { return !isTabletStream(l.stream) }) {
		g.logged = nil
	}
	for i, r := range out {
		if r.Streams == nil {
			for _, l := range g.logged {
				if (i == 0 || !l.at.Before(r.Start)) && (i+1 == len(out) || l.at.Before(out[i+1].Start)) && !slices.Contains(r.Tokens, l.token) {
					r.Tokens = append(r.Tokens, l.token)
					r.Streams = append(r.Streams, [][]byte{l.stream})
				}
			}
		}
		r.sort()
		if len(r.Tokens) == 0 && i > 0 {
			r.Tokens, r.Streams = slices.Clone(out[i-1].Tokens), slices.Clone(out[i-1].Streams)
		}
	}
	for i, r := range slices.Backward(out) {
		if len(r.Tokens) == 0 && i+1 < len(out) {
			r.Tokens, r.Streams = slices.Clone(out[i+1].Tokens), slices.Clone(out[i+1].Streams)
		}
		r.pad()
	}
	return out
}

// pad gives a ring with fewer than three tokens, which are too few for three nodes, others
// that have the streams of its first.
func (r *Ring) pad() {
	for _, t := range []int64{math.MinInt64 / 2, 0, math.MaxInt64 / 2} {
		if len(r.Tokens) >= 3 {
			break
		}
		r.Tokens = append(r.Tokens, t)
		if len(r.Streams) > 0 {
			r.Streams = append(r.Streams, r.Streams[0])
		}
	}
	r.sort()
}

// sort sorts tokens and streams by token.
func (r *Ring) sort() {
	streams := make(map[int64][][]byte, len(r.Tokens))
	for i, s := range r.Streams {
		streams[r.Tokens[i]] = s
	}
	slices.Sort(r.Tokens)
	for i := range r.Streams {
		r.Streams[i] = streams[r.Tokens[i]]
	}
}

// ShownStarts returns the starts of generations with vnodes in an answer, in order.
func ShownStarts(a *Answer) (out []time.Time) {
	if len(a.Columns) != 1 || a.Columns[0].Table != "cdc_generation_timestamps" {
		return nil
	}
	for _, row := range a.Rows {
		out = append(out, time.UnixMilli(int64(binary.BigEndian.Uint64(row[0]))))
	}
	slices.SortFunc(out, time.Time.Compare)
	return out
}
