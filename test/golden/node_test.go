package golden_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
	"github.com/scylla-outbox/scylla-outbox/test/golden"
)

const goldenDir = "../testdata/golden"

// goldenScripts are the scripted recordings and the parameters of their nodes.
var goldenScripts = []struct {
	name   string
	shards int
	// ring is the recording that contains the node's tokens and streams.
	ring string
	// cases limits the replay to some cases; nil means all.
	cases []string
	// whole means that every step must agree but for the listed ones;
	// otherwise nine of ten must.
	whole bool
}{
	{name: "A", shards: 1, ring: "F"},
	{name: "A.2shards", shards: 2, ring: "F.2shards"},
	{name: "B", shards: 1, ring: "F"},
	{name: "C", shards: 1, ring: "F"},
	{name: "D", shards: 1, ring: "F", whole: true},
	{name: "E", shards: 1, ring: "F", whole: true},
	{name: "E.2shards", shards: 2, ring: "F.2shards", whole: true},
	{name: "F", shards: 1, ring: "F", whole: true},
	{name: "F.2shards", shards: 2, ring: "F.2shards", whole: true},
	{name: "F.1token", shards: 1, ring: "F.1token", whole: true},
	{name: "F.4tokens", shards: 1, ring: "F.4tokens", whole: true},
	{name: "F1.restart", shards: 1, ring: "F.4tokens", whole: true},
	// The second case ruins the node.
	{name: "F4", shards: 1, ring: "F.4tokens", cases: []string{"F4"}, whole: true},
}

// TestGolden plays recordings of a real node against a node of this package and
// compares every response. Steps that may differ are listed, each with its reason, in
// testdata/left-out.txt.
func TestGolden(t *testing.T) {
	t.Parallel()
	left := readLeftOut(t)
	for _, script := range goldenScripts {
		t.Run(script.name, func(t *testing.T) {
			t.Parallel()
			cases, ring := loadGolden(t, script.name), goldenRing(t, script.ring)
			var mu sync.Mutex
			var total golden.Summary
			t.Run("cases", func(t *testing.T) {
				for _, c := range cases {
					if script.cases != nil && c.Name != script.cases[0] {
						continue
					}
					t.Run(c.Name, func(t *testing.T) {
						t.Parallel()
						n := newGoldenNode(t, ring, script.shards, time.UnixMicro(c.Info.T), script.name == "F1.restart")
						sum := playGolden(t, c, n, left)
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
			if !script.whole && total.Agreed*10 < total.Steps*9 {
				t.Errorf("%d of %d steps agree, fewer than nine of ten", total.Agreed, total.Steps)
			}
		})
	}
}

func readLeftOut(t *testing.T) golden.LeftOuts {
	t.Helper()
	f, err := os.Open("testdata/left-out.txt")
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

func loadGolden(t *testing.T, name string) []*golden.Case {
	t.Helper()
	cases, err := golden.Load(goldenDir, name)
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

func goldenRing(t *testing.T, name string) *golden.Ring {
	t.Helper()
	ring, err := golden.RingOfCases(loadGolden(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func playGolden(t *testing.T, c *golden.Case, n *goldenNode, left golden.LeftOuts) golden.Summary {
	t.Helper()
	out, err := golden.Play(t.Context(), n.node(), c)
	if err != nil {
		t.Error(err)
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
func newGoldenNode(t *testing.T, ring *golden.Ring, shards int, now time.Time, restarts bool) *goldenNode {
	t.Helper()
	n := &goldenNode{t: t}
	n.setClock(now)
	n.cfg = scyllafake.Config{
		Addr: "127.0.0.1:0", ShardAwarePort: -1, Shards: shards, Identity: identity(ring),
		Now: func() time.Time { return time.UnixMicro(n.clock.Load()) },
	}
	if restarts {
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
	return golden.Node{Dial: n.dial, SetClock: n.setClock, Shards: n.cfg.Shards, Hook: n.hook}
}

func (n *goldenNode) setClock(at time.Time) { n.clock.Store(at.UnixMicro()) }

// dial connects; on the shard-aware port from a source port that chooses the shard.
func (n *goldenNode) dial(ctx context.Context, shardAware bool, shard int) (net.Conn, error) {
	var d net.Dialer
	if !shardAware {
		return d.DialContext(ctx, "tcp", n.server.Addr())
	}
	for port := 40000 + shard; port < 50000; port += n.cfg.Shards {
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
	case "start: end":
		return nil
	}
	return fmt.Errorf("unknown hook %q", what)
}

// goldenDrivers are recordings of unmodified drivers' own frames, the ones of one
// node together.
var goldenDrivers = []struct {
	name   string
	shards int
	traces []string
	ring   string
	// unrecorded means that another client, which did the same as that of writer-run,
	// was active; joins that a second node joined.
	unrecorded, joins bool
}{
	{name: "run", shards: 1, traces: []string{"writer-run", "reader-run"}, ring: "reader-run"},
	{name: "2shards", shards: 2, traces: []string{"reader-2shards"}, ring: "reader-2shards", unrecorded: true},
	{name: "switch", shards: 1, traces: []string{"reader-switch"}, ring: "reader-switch", unrecorded: true, joins: true},
}

// TestGoldenDrivers plays every frame that unmodified drivers sent to a real node, with
// the same concurrency, and compares every response.
func TestGoldenDrivers(t *testing.T) {
	t.Parallel()
	left := readLeftOut(t)
	for _, d := range goldenDrivers {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			var traces []*golden.Trace
			for _, name := range d.traces {
				traces = append(traces, loadTrace(t, name))
			}
			ring, err := golden.RingOfFrames(loadTrace(t, d.ring).Frames)
			if err != nil {
				t.Fatal(err)
			}
			n := newGoldenNode(t, ring, d.shards, ring.Start, false)
			var others []golden.Statement
			if d.unrecorded {
				if others, err = traces[0].Unrecorded(loadTrace(t, "writer-run")); err != nil {
					t.Fatal(err)
				}
			}
			if d.joins {
				others = append(others, n.join(traces[0])...)
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

func loadTrace(t *testing.T, name string) *golden.Trace {
	t.Helper()
	trace, err := golden.LoadTrace(goldenDir, name)
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
