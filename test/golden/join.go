package golden

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Join describes a second node that joined during a trace, as far as the client could
// see.
type Join struct {
	// At is shortly before the client's event.
	At time.Time
	// Ring has the tokens of both nodes and the generation that followed.
	Ring *Ring
	// Peer inserts the node's row into system.peers.
	Peer Statement
	// Addr is the node's address.
	Addr string
}

// Join finds the second node in a trace.
func (t *Trace) Join() (*Join, error) {
	j := &Join{Ring: new(Ring)}
	var streams [][][]byte
	var tokens []int64
	for _, f := range t.Frames {
		if f.Dir != "response" && f.Dir != "event" {
			continue
		}
		a, err := Decode(f.Frame, "", nil)
		if err != nil {
			return nil, err
		}
		if a.Kind == "TOPOLOGY_CHANGE" {
			j.At = t.at(f).Add(-time.Millisecond)
			j.Addr, _, _ = strings.Cut(a.Change[1], ":")
		}
		if a.Kind != "Rows" || len(a.Columns) == 0 {
			continue
		}
		for _, row := range a.Rows {
			for i, c := range a.Columns {
				switch {
				case c.Table == "cdc_generation_timestamps" && c.Name == "time":
					if at := time.UnixMilli(be64(row[i])); at.After(j.Ring.Start) {
						j.Ring.Start = at
					}
				case c.Name == "tokens" && c.Table == "peers" && j.Peer.CQL == "":
					j.Peer = insert(a.Columns, row)
					fallthrough
				case c.Name == "tokens" && c.Table == "local" && len(tokens) == 0:
					for e := range cqltype.Elements(row[i]) {
						n, _ := strconv.ParseInt(string(e), 10, 64) //nolint:errcheck // a token is a number
						tokens = append(tokens, n)
					}
				}
			}
		}
		if len(a.Columns) == 1 && a.Columns[0].Table == "cdc_streams_descriptions_v2" {
			streams = nil // the last one read is the new generation's
			for _, row := range a.Rows {
				streams = append(streams, slices.Collect(cqltype.Elements(row[0])))
			}
		}
	}
	slices.Sort(tokens)
	j.Ring.Tokens, j.Ring.Streams = tokens, streams
	if j.At.IsZero() || j.Peer.CQL == "" || len(tokens) != len(streams) {
		return nil, errors.New("no node joins in this trace, or its tokens or streams were not read")
	}
	j.Peer.At = j.At
	return j, nil
}
