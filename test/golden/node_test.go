package golden_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
	"github.com/scylla-outbox/scylla-outbox/test/golden"
)

// release is a recorded release and its recordings.
type release struct {
	version  string
	dir      string // of the recordings
	leftOut  string // the list of steps that may differ
	derived  string // the list of steps that differ by a refused feature; -update writes it
	scripts  []goldenScript
	clusters []goldenScript // recordings of several nodes
	ringTime time.Duration  // of nodes with tablets
}

var (
	release51 = release{
		version: "5.1", dir: "../testdata/golden", leftOut: "testdata/left-out.txt", derived: "testdata/refused.txt",
		scripts: goldenScripts, clusters: goldenClusters51,
	}
	release2026 = release{
		version: "2026.1", dir: "../testdata/golden-2026", leftOut: "testdata/left-out-2026.txt", derived: "testdata/refused-2026.txt",
		scripts: goldenScripts2026, clusters: goldenClusters2026, ringTime: time.Second,
	}
)

// goldenScript is a scripted recording and the parameters of its node.
type goldenScript struct {
	name   string
	shards int
	// ring is the recording that contains the node's tokens and streams.
	ring string
	// tablets means that new keyspaces have tablets.
	tablets bool
	// nodes is the number of nodes of a cluster, 1 for one that another joins.
	nodes int
}

var goldenScripts = []goldenScript{
	{name: "A", shards: 1, ring: "F"},
	{name: "A.2shards", shards: 2, ring: "F.2shards"},
	{name: "B", shards: 1, ring: "F"},
	{name: "C", shards: 1, ring: "F"},
	{name: "D", shards: 1, ring: "F"},
	{name: "E", shards: 1, ring: "F"},
	{name: "E.2shards", shards: 2, ring: "F.2shards"},
	{name: "F", shards: 1, ring: "F"},
	{name: "F.2shards", shards: 2, ring: "F.2shards"},
	{name: "F.1token", shards: 1, ring: "F.1token"},
	{name: "F.4tokens", shards: 1, ring: "F.4tokens"},
	{name: "F1.restart", shards: 1, ring: "F.4tokens"},
}

var goldenScripts2026 = []goldenScript{
	{name: "A.vnodes", shards: 1, ring: "F.vnodes"},
	{name: "A.2shards.vnodes", shards: 2, ring: "F.2shards.vnodes"},
	{name: "A.tablets", shards: 1, ring: "F.tablets", tablets: true},
	{name: "B.vnodes", shards: 1, ring: "F.vnodes"},
	{name: "B.tablets", shards: 1, ring: "F.tablets", tablets: true},
	{name: "C.vnodes", shards: 1, ring: "F.vnodes"},
	{name: "C.tablets", shards: 1, ring: "F.tablets", tablets: true},
	{name: "D.vnodes", shards: 1, ring: "F.vnodes"},
	{name: "D.tablets", shards: 1, ring: "F.tablets", tablets: true},
	{name: "E.vnodes", shards: 1, ring: "F.vnodes"},
	{name: "E.tablets", shards: 1, ring: "F.tablets", tablets: true},
	{name: "E.2shards.vnodes", shards: 2, ring: "F.2shards.vnodes"},
	{name: "F.vnodes", shards: 1, ring: "F.vnodes"},
	{name: "F.tablets", shards: 1, ring: "F.tablets", tablets: true},
	{name: "F.2shards.vnodes", shards: 2, ring: "F.2shards.vnodes"},
	{name: "F.1tokens.vnodes", shards: 1, ring: "F.1tokens.vnodes"},
	{name: "F.4tokens.vnodes", shards: 1, ring: "F.4tokens.vnodes"},
	{name: "F1.restart.vnodes", shards: 1, ring: "F1.restart.vnodes"},
	{name: "F1.restart.tablets", shards: 1, ring: "F1.restart.tablets", tablets: true},
	{name: "T1", shards: 1, ring: "F.tablets", tablets: true},
	{name: "T1.2shards", shards: 2, ring: "F.2shards.vnodes", tablets: true},
	{name: "T2", shards: 1, ring: "F.tablets", tablets: true},
	{name: "T3", shards: 1, ring: "F.tablets", tablets: true},
	{name: "T4", shards: 1, ring: "F.tablets", tablets: true},
	{name: "T5", shards: 1, ring: "F.tablets", tablets: true},
	{name: "T5.2shards", shards: 2, ring: "F.2shards.vnodes", tablets: true},
	{name: "T7", shards: 1, ring: "F.tablets", tablets: true},
	{name: "T8", shards: 1, ring: "F.tablets", tablets: true},
	{name: "Tcrash", shards: 1, ring: "F.tablets", tablets: true},
}

// update writes the lists of steps that differ by a refused feature.
var update = flag.Bool("update", false, "write testdata/refused*.txt anew")

// TestGolden plays recordings of a real node against a node of this package and
// compares every response. Steps that may differ are listed, each with its reason: by
// hand in testdata/left-out*.txt, and where a response names a feature that the server
// does not have in testdata/refused*.txt, which -update derives from the responses.
func TestGolden(t *testing.T) {
	t.Parallel()
	for _, rel := range []release{release51, release2026} {
		t.Run(rel.version, func(t *testing.T) { rel.play(t) })
	}
}

// derivation collects the derived entries of a release by recording and case.
type derivation struct {
	mu      sync.Mutex
	entries map[[2]string]golden.LeftOuts
}

func (d *derivation) add(c *golden.Case, entries golden.LeftOuts) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries[[2]string{c.File, c.Name}] = entries
}

// write writes the list in the order of the recordings and of their cases' names.
func (d *derivation) write(t *testing.T, rel release) {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("# Written by go test ./test/golden -run TestGolden -update: steps whose responses name a feature\n" +
		"# that scyllafake does not have, and steps that differ after one. Format: left-out.txt.\n")
	keys := slices.SortedFunc(maps.Keys(d.entries), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	for _, k := range keys {
		if _, err := d.entries[k].WriteTo(&b); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(rel.derived, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (rel release) play(t *testing.T) {
	t.Parallel()
	left := rel.readLeftOut(t, rel.leftOut)
	derived := &derivation{entries: map[[2]string]golden.LeftOuts{}}
	if *update {
		t.Cleanup(func() { derived.write(t, rel) })
	} else {
		left = append(left, rel.readLeftOut(t, rel.derived)...)
	}
	for _, script := range slices.Concat(rel.scripts, rel.clusters) {
		t.Run(script.name, func(t *testing.T) {
			t.Parallel()
			cases, playCase := rel.load(t, script.name), rel.player(t, script, left, derived)
			var mu sync.Mutex
			var total golden.Summary
			t.Run("cases", func(t *testing.T) {
				for _, c := range cases {
					t.Run(c.Name, func(t *testing.T) {
						t.Parallel()
						sum := playCase(t, c)
						mu.Lock()
						defer mu.Unlock()
						total.Add(sum)
					})
				}
			})
			t.Log(total.String())
			for _, e := range total.Unneeded(script.name, left) {
				t.Errorf("an entry of the list of left-out steps is not needed: %s", e)
			}
		})
	}
}

// player returns the function that plays a case of a recording.
func (rel release) player(t *testing.T, script goldenScript, left golden.LeftOuts, derived *derivation) func(*testing.T, *golden.Case) golden.Summary {
	t.Helper()
	if script.nodes > 0 {
		return func(t *testing.T, c *golden.Case) golden.Summary {
			t.Helper()
			return playCluster(t, rel, script, c, left, derived)
		}
	}
	ring := rel.ring(t, script.ring)
	return func(t *testing.T, c *golden.Case) golden.Summary {
		t.Helper()
		n := newGoldenNode(t, rel, script, ring, time.UnixMicro(c.Info.T))
		return playGolden(t, c, n.node(), left, derived)
	}
}

func (rel release) readLeftOut(t *testing.T, path string) golden.LeftOuts {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	left, err := golden.ReadLeftOut(f)
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func (rel release) load(t *testing.T, name string) []*golden.Case {
	t.Helper()
	cases, err := golden.Load(rel.dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

func (rel release) ring(t *testing.T, name string) *golden.Ring {
	t.Helper()
	ring, err := golden.RingOfCases(rel.load(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func playGolden(t *testing.T, c *golden.Case, n golden.Node, left golden.LeftOuts, derived *derivation) golden.Summary {
	t.Helper()
	out, err := golden.Play(t.Context(), n, c)
	if err != nil {
		t.Error(err)
	}
	if *update {
		entries := golden.Derive(c, out, left)
		derived.add(c, entries)
		left = slices.Concat(left, entries)
	}
	sum := golden.Sum(c, out, left)
	t.Log(sum.String())
	for _, w := range sum.Wrong {
		t.Error(w)
	}
	return sum
}

// goldenNode is a node with a recorded node's identity and a settable clock.
type goldenNode struct {
	t      *testing.T
	cfg    scyllafake.Config
	clock  atomic.Int64 // µs
	server *scyllafake.Server
}

// newGoldenNode starts a node; one that restarts keeps its data on disk.
func newGoldenNode(t *testing.T, rel release, script goldenScript, ring *golden.Ring, now time.Time) *goldenNode {
	t.Helper()
	n := &goldenNode{t: t}
	n.setClock(now)
	n.cfg = scyllafake.Config{
		Addr: "127.0.0.1:0", ShardAwarePort: -1, Shards: script.shards, Identity: identity(ring),
		Version: rel.version, Vnodes: !script.tablets, TabletInterval: time.Hour,
		Now: func() time.Time { return time.UnixMicro(n.clock.Load()) },
	}
	if script.tablets {
		n.cfg.RingDelay = rel.ringTime
	}
	if strings.HasPrefix(script.name, "F1.restart") || script.name == "T8" {
		n.cfg.Dir = t.TempDir()
	}
	n.start()
	t.Cleanup(func() {
		if err := n.server.Close(); err != nil {
			t.Errorf("Close() error = %v", err)
		}
	})
	return n
}

func identity(ring *golden.Ring) *topology.Identity {
	id := &topology.Identity{HostID: ring.HostID, Tokens: ring.Tokens, GenerationID: ring.GenerationID, Start: ring.Start}
	for _, streams := range ring.Streams {
		var ids []topology.StreamID
		for _, s := range streams {
			ids = append(ids, topology.StreamID(s))
		}
		id.Streams = append(id.Streams, ids)
	}
	return id
}

func (n *goldenNode) start() {
	n.t.Helper()
	s, err := scyllafake.Start(n.cfg)
	if err != nil {
		n.t.Fatalf("Start() error = %v", err)
	}
	n.server = s
}

// node is the node as the player of recordings sees it.
func (n *goldenNode) node() golden.Node {
	return golden.Node{Dial: n.dial, SetClock: n.setClock, Shards: n.cfg.Shards, Hook: n.hook, Balance: n.balance}
}

func (n *goldenNode) setClock(at time.Time) { n.clock.Store(at.UnixMicro()) }

// balance runs the tablet balancer, at the time that gives a new generation this start.
func (n *goldenNode) balance(start time.Time) error {
	if !start.IsZero() {
		if n.cfg.RingDelay > 0 {
			start = start.Add(-2*n.cfg.RingDelay - topology.Leeway)
		}
		n.setClock(start)
	}
	n.server.BalanceTablets()
	return nil
}

// dial connects; on the shard-aware port from a source port that chooses the shard.
func (n *goldenNode) dial(ctx context.Context, to golden.Port) (net.Conn, error) {
	var d net.Dialer
	if !to.ShardAware {
		return d.DialContext(ctx, "tcp", n.server.Addr())
	}
	for port := 40000 + to.Shard; port < 50000; port += n.cfg.Shards {
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
		if nc, err := d.DialContext(ctx, "tcp", n.server.ShardAwareAddr()); err == nil {
			return nc, nil
		}
	}
	return nil, errors.New("no free source port")
}

// hook repeats the actions of the scripts' hooks on the node.
func (n *goldenNode) hook(what string) error {
	switch what {
	case "stop: the node is stopped by SIGTERM":
		return n.server.Close()
	case "start: begin: the node starts again":
		n.start()
		return nil
	case "start: end", "split: asked for by the ALTER", "merge: asked for by the ALTER":
		return nil // a node balances its tablets by itself
	}
	return fmt.Errorf("unknown hook %q", what)
}

// goldenDrivers are recordings of unmodified drivers' own frames, the ones of one
// node together.
var goldenDrivers = []goldenDriver{
	{name: "run", rel: release51, shards: 1, traces: []string{"writer-run", "reader-run"}, ring: "reader-run"},
	{name: "2shards", rel: release51, shards: 2, traces: []string{"reader-2shards"}, ring: "reader-2shards", unrecorded: true},
	{name: "switch", rel: release51, shards: 1, traces: []string{"reader-switch"}, ring: "reader-switch", unrecorded: true, joins: true},
	{name: "2026-vnodes", rel: release2026, shards: 1, traces: []string{"writer-run.vnodes", "reader-run.vnodes"}, ring: "reader-run.vnodes"},
	{name: "2026-tablets", rel: release2026, shards: 1, traces: []string{"writer-run.tablets", "reader-run.tablets"}, tablets: true},
}

// goldenDriver are recordings of one node.
type goldenDriver struct {
	name   string
	rel    release
	shards int
	traces []string
	// ring is the recording with the node's tokens and streams.
	ring string
	// unrecorded means that another client, which did the same as that of writer-run,
	// was active; joins that a second node joined; tablets that the tables with CDC were
	// made with tablets before, and that the table of the reader was split.
	unrecorded, joins, tablets bool
}

// TestGoldenDrivers plays every frame that unmodified drivers sent to a real node, with
// the same concurrency, and compares every response.
func TestGoldenDrivers(t *testing.T) {
	t.Parallel()
	for _, d := range goldenDrivers {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			left := d.rel.readLeftOut(t, d.rel.leftOut)
			var traces []*golden.Trace
			for _, name := range d.traces {
				traces = append(traces, d.rel.trace(t, name))
			}
			n := newGoldenNode(t, d.rel, goldenScript{shards: d.shards, tablets: d.tablets}, d.loadRing(t), traces[0].Start)
			var others []golden.Statement
			if d.unrecorded {
				var err error
				if others, err = traces[0].Unrecorded(d.rel.trace(t, "writer-run")); err != nil {
					t.Fatal(err)
				}
			}
			if d.joins {
				others = append(others, n.join(traces[0])...)
			}
			if d.tablets {
				others = append(others, n.split(traces[0], traces[1])...)
			}
			out, err := golden.PlayTraces(t.Context(), n.node(), others, traces...)
			if err != nil {
				t.Error(err)
			}
			for name, o := range out {
				sum := golden.Sum(&golden.Case{File: name, Name: name}, o, left)
				t.Logf("%s: %s", name, sum)
				for _, w := range append(sum.Wrong, sum.Unneeded(name, left)...) {
					t.Errorf("%s: %s", name, w)
				}
			}
		})
	}
}

// loadRing returns the ring of the node. That of one with tablets only is in no trace: its
// tables have the streams of their tablets.
func (d goldenDriver) loadRing(t *testing.T) *golden.Ring {
	t.Helper()
	if d.tablets {
		return d.rel.ring(t, "F.tablets")
	}
	ring, err := golden.RingOfFrames(d.rel.trace(t, d.ring).Frames)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// split returns the actions of the node and of a client without a trace: the tables with
// CDC are made with two tablets before the writer begins, and an ALTER splits the one
// that the reader reads.
func (n *goldenNode) split(writer, reader *golden.Trace) []golden.Statement {
	n.t.Helper()
	generations, err := reader.Generations()
	if err != nil || len(generations) != 2 {
		n.t.Fatalf("generations %v (%v), want two", generations, err)
	}
	altered, err := reader.Changed("shop", "outbox")
	if err != nil {
		n.t.Fatal(err)
	}
	made := generations[0].Start.Add(topology.Leeway)
	create, _ := writer.Schema()
	var out []golden.Statement
	for _, cql := range create {
		if strings.Contains(cql, " cdc = ") {
			cql += " AND tablets = {'min_tablet_count': 2}"
		}
		if !strings.Contains(cql, "shop.orders") {
			out = append(out, golden.Statement{At: made, CQL: cql})
		}
	}
	return append(out,
		golden.Statement{At: altered.Add(-time.Millisecond), CQL: "ALTER TABLE shop.outbox WITH tablets = {'min_tablet_count': 4}"},
		golden.Statement{At: generations[1].Asked.Add(-time.Millisecond), Node: func() error { return n.balance(generations[1].Start) }})
}

func (rel release) trace(t *testing.T, name string) *golden.Trace {
	t.Helper()
	trace, err := golden.LoadTrace(rel.dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// join returns the actions of the node when a second one joins: it sends the event, and
// begins the generation of both.
func (n *goldenNode) join(trace *golden.Trace) []golden.Statement {
	n.t.Helper()
	j, err := trace.Join()
	if err != nil {
		n.t.Fatal(err)
	}
	return []golden.Statement{j.Peer, {At: j.At, Node: func() error {
		if _, err := n.server.Topology().AddGeneration(identity(j.Ring)); err != nil {
			return err
		}
		addr, err := netip.ParseAddr(j.Addr)
		if err != nil {
			return err
		}
		n.server.PublishNode(scyllafake.NodeNew, addr)
		n.server.PublishNode(scyllafake.NodeUp, addr)
		return nil
	}}}
}
