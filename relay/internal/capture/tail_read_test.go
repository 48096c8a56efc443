package capture

import (
	"encoding/binary"
	"errors"
	"math/rand"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Whatever a page holds and where it ends, a reading returns every row once, the ones of a
// stream in order, and few rows more than once.
func TestTail_ReadsEveryRowWhereverAPageEnds(t *testing.T) {
	t.Parallel()
	seeds := int64(60)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewSource(seed))
			n := 1 + rnd.Intn(GroupStreams)
			log := &memLog{page: 1 + rnd.Intn(60)}
			var streams [][]byte
			begin := time.Now()
			for s := range n {
				token := s - n/2 // negative ones are last in the order of values
				streams = append(streams, memStream(token))
				rows := rnd.Intn(1 + rnd.Intn(20))
				if rnd.Intn(10) == 0 {
					rows = rnd.Intn(200)
				}
				for i := range rows {
					at := begin.Add(time.Duration(1+rnd.Intn(10_000)) * time.Millisecond)
					log.rows = append(log.rows, memRow{stream: token, time: gocql.MinTimeUUID(at), visible: begin, event: relaytest.Event(i, 1, "OrderCreated")})
					binary.BigEndian.PutUint32(log.rows[len(log.rows)-1].time[12:], uint32(len(log.rows)))
				}
			}
			slices.SortFunc(log.rows, func(a, b memRow) int { return scyllacdc.CompareTimeUUID(a.time, b.time) })
			cfg := newSettings(relaytest.Logger(t))
			tl := NewTail(&cfg.Config, NewMetrics(prometheus.NewRegistry()), Input{Table: &outbox.DefaultTable}, log, nil, nil)
			g := newTailGroup(tl, cdclog.NewGeneration(begin, streams, func(i int) int64 { return int64(i) }), 0, n)
			var only []int
			if rnd.Intn(3) == 0 {
				only = rnd.Perm(n)[:1+rnd.Intn(n)]
			}
			last, got, want := make(map[string]gocql.UUID), 0, 0
			for _, r := range log.rows {
				if only == nil || slices.Contains(only, g.generation.Index(memStream(r.stream))) {
					want++
				}
			}
			r := reading{group: g, started: begin}
			next, err := g.readRows(t.Context(), only, begin.UnixMicro(), 0, 1+rnd.Intn(n), &r, func(row *cdclog.Row) error {
				g.seen[row.RowKey] = struct{}{}
				if before, ok := last[string(row.Stream)]; ok && scyllacdc.CompareTimeUUID(before, row.Time) >= 0 {
					return errors.New("a row is returned after a later one of its stream")
				}
				last[string(row.Stream)] = row.Time
				got++
				return nil
			})
			if err != nil || got != want || next < 1 || next > GroupStreams {
				t.Errorf("seed %d: readRows() = %d, %v, with %d of %d rows", seed, next, err, got, want)
			}
			if r.again > log.cutRows {
				t.Errorf("seed %d: %d rows were read again, want at most the %d that pages cut off", seed, r.again, log.cutRows)
			}
			if log.cut > n/2+1 {
				t.Errorf("seed %d: %d pages of %d streams were cut", seed, log.cut, n)
			}
			if queries := len(log.queries); queries > 2*n+1 {
				t.Errorf("seed %d: %d queries of %d streams", seed, queries, n)
			}
			for _, q := range log.queries {
				if len(q.streams) > GroupStreams {
					t.Errorf("seed %d: a query of %d streams", seed, len(q.streams))
				}
			}
		})
	}
}

// Where readings that go far back have many rows and the others few, neither takes its
// width from the other.
func TestTail_ReadsFarBackInNarrowQueries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, nil)
		defer b.stop()
		var rows []memRow
		for i := range 4000 {
			e, at := relaytest.Event(i, 1, "OrderUpdated"), time.Now().Add(time.Duration(i)*2*time.Millisecond)
			u := gocql.MinTimeUUID(at)
			copy(u[8:], e.ID.UUID().Bytes()[8:])
			rows = append(rows, memRow{i % 4, u, e, at})
		}
		b.log.mu.Lock()
		b.log.rows = rows
		b.log.mu.Unlock()
		time.Sleep(15 * time.Second)
		if n := relaytest.Count(b.published.Found[publish.ByTail]); n != 4000 {
			t.Errorf("found %v of 4000 events", n)
		}
		b.log.mu.Lock()
		defer b.log.mu.Unlock()
		if b.log.cut == 0 || b.log.cut > 2 {
			t.Errorf("%d pages were cut, want at most two when rows begin", b.log.cut)
		}
	})
}
