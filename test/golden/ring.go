package golden

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Ring describes the recorded node in its cluster: a node must have the same ring for
// keys to fall into the same streams.
type Ring struct {
	HostID [16]byte
	Tokens []int64 // sorted
	// GenerationID is zero when the recording does not contain it.
	GenerationID [16]byte
	Start        time.Time
	// Streams are the streams of each token, by shard.
	Streams [][][]byte
}

// FindRing finds the ring in the responses of a recording of one node. The first
// generation counts.
func FindRing(answers []*Answer) (*Ring, error) {
	r := new(Ring)
	var starts []time.Time
	byEnd := map[int64][][]byte{}
	for _, a := range answers {
		if a.Kind != "Rows" {
			continue
		}
		for _, row := range a.Rows {
			r.learn(a.Columns, row, byEnd, &starts)
		}
		if r.Streams == nil && len(a.Columns) == 1 && a.Columns[0].Table == "cdc_streams_descriptions_v2" {
			// Only the streams, one row for each token in their order.
			for _, row := range a.Rows {
				r.Streams = append(r.Streams, slices.Collect(cqltype.Elements(row[0])))
			}
		}
	}
	slices.Sort(r.Tokens)
	if len(byEnd) > 0 {
		r.Streams = nil
		for _, t := range r.Tokens {
			r.Streams = append(r.Streams, byEnd[t])
		}
	}
	if len(starts) > 0 {
		r.Start = slices.MinFunc(starts, time.Time.Compare)
	}
	if len(r.Tokens) == 0 || len(r.Streams) != len(r.Tokens) || r.Start.IsZero() {
		return nil, fmt.Errorf("the recording has %d tokens, streams for %d, and %d generations",
			len(r.Tokens), len(r.Streams), len(starts))
	}
	return r, nil
}

func (r *Ring) learn(cols []Column, row [][]byte, byEnd map[int64][][]byte, starts *[]time.Time) {
	var end []byte
	for i, c := range cols {
		v := row[i]
		switch {
		case v == nil:
		case c.Table == "local" && c.Name == "host_id":
			r.HostID = [16]byte(v)
		case c.Table == "local" && c.Name == "tokens":
			r.Tokens = r.Tokens[:0]
			for e := range cqltype.Elements(v) {
				n, _ := strconv.ParseInt(string(e), 10, 64)
				r.Tokens = append(r.Tokens, n)
			}
		case c.Table == "cdc_generation_timestamps" && c.Name == "time":
			*starts = append(*starts, time.UnixMilli(be64(v)))
		case c.Table == "cdc_generation_descriptions_v2" && c.Name == "id":
			r.GenerationID = [16]byte(v)
		case c.Table == "cdc_streams_descriptions_v2" && c.Name == "range_end":
			end = v
		case c.Table == "cdc_streams_descriptions_v2" && c.Name == "streams" && end != nil:
			if _, known := byEnd[be64(end)]; !known {
				byEnd[be64(end)] = slices.Collect(cqltype.Elements(v))
			}
		}
	}
}

// RingOfCases finds the ring in a scripted recording.
func RingOfCases(cases []*Case) (*Ring, error) {
	var answers []*Answer
	for _, c := range cases {
		v := newView()
		for _, rec := range c.Records {
			if rec.Response == nil {
				continue
			}
			if a, err := v.answer(rec.Conn, rec.Kind, rec.Request, rec.Response); err == nil {
				answers = append(answers, a)
			}
		}
	}
	return FindRing(answers)
}

// RingOfFrames finds the ring in a recording of a driver's frames.
func RingOfFrames(frames []*Frame) (*Ring, error) {
	var answers []*Answer
	v := newView()
	requests := map[string][]byte{} // by connection and stream
	for _, f := range frames {
		conn := strconv.Itoa(f.Conn)
		slot := fmt.Sprintf("%s/%d", conn, f.Stream)
		switch f.Dir {
		case "request":
			requests[slot] = f.Frame
		case "response":
			q := requests[slot]
			if q == nil {
				continue
			}
			if a, err := v.answer(conn, requestKinds[parseHeader(q).Opcode], q, f.Frame); err == nil {
				answers = append(answers, a)
			}
		}
	}
	return FindRing(answers)
}
