package golden_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
	"github.com/scylla-outbox/scylla-outbox/test/golden"
)

// goldenClusters51 and goldenClusters2026 are recordings of several nodes, and of nodes
// whose streams only the recording itself shows.
var (
	goldenClusters51 = []goldenScript{
		{name: "F3", shards: 1, nodes: 1},
		{name: "failures", shards: 1, nodes: 2},
		{name: "batchlog", shards: 1, nodes: 3},
		{name: "batchlog-generation", shards: 1, nodes: 3},
		{name: "cas-generation", shards: 1, nodes: 1},
		{name: "crash", shards: 1, nodes: 1},
		{name: "F4", shards: 1, nodes: 1},
	}
	goldenClusters2026 = []goldenScript{
		{name: "F3.vnodes", shards: 1, nodes: 1},
		{name: "T6", shards: 1, nodes: 1, tablets: true},
		{name: "T9", shards: 1, nodes: 3, tablets: true},
		{name: "failures.vnodes", shards: 1, nodes: 2},
		{name: "failures.tablets", shards: 1, nodes: 2, tablets: true},
		{name: "batchlog.vnodes", shards: 1, nodes: 3},
		{name: "batchlog.tablets", shards: 1, nodes: 3, tablets: true},
		{name: "batchlog-generation.vnodes", shards: 1, nodes: 3},
		{name: "cas-generation.vnodes", shards: 1, nodes: 1},
		{name: "crash.vnodes", shards: 1, nodes: 1},
		{name: "F4.vnodes", shards: 1, nodes: 1},
	}
)

// clusterNode is a goldenNode in place of all nodes of a recorded cluster. It has one copy of the
// data; effects of the other nodes are applied to it when the recording shows them: generations,
// events, and the failures of operations. The texts of the errors, the rows and the log rows are
// its own. It runs in a bubble of virtual time, which is the time of the recording.
type clusterNode struct {
	*goldenNode
	script      goldenScript
	generations []*golden.Ring // that follow
	fates       map[*golden.Record]golden.Fate
	rule        int // of the last failure
	at          time.Time
	others      []net.Conn // connections to other nodes
	// leaving is set while a node leaves, resized after the resize that was due before.
	leaving, resized bool
}

// playCluster plays a case of a cluster in a bubble.
func playCluster(t *testing.T, rel release, script goldenScript, c *golden.Case, left golden.LeftOuts, derived *derivation) (sum golden.Summary) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		now, rings := time.UnixMicro(c.Info.T), c.Generations()
		n := &clusterNode{goldenNode: &goldenNode{t: t}, script: script, generations: rings[1:], fates: c.Fates(), at: now}
		n.clock.Store(now.UnixMicro())
		n.cfg = scyllafake.Config{
			Shards: script.shards, Nodes: script.nodes, Identity: identity(rings[0]), Version: rel.version, Vnodes: !script.tablets,
			TabletInterval: 24 * time.Hour, Now: func() time.Time { return time.UnixMicro(n.clock.Load()) },
		}
		if script.tablets && script.nodes == 1 {
			n.cfg.RingDelay = rel.ringTime
		}
		n.start()
		defer n.server.Close() //nolint:errcheck // in memory
		for len(n.generations) > 0 && n.generations[0].Start.Before(now) {
			n.generation()
		}
		sum = playGolden(t, c, golden.Node{
			Dial: n.dial, SetClock: n.setClock, Shards: script.shards, Hook: n.hook, Balance: n.balance, Before: n.before,
		}, left, derived)
	})
	return sum
}

// setClock lets virtual time pass up to the time of a step.
func (n *clusterNode) setClock(at time.Time) {
	if d := at.Sub(n.at); d > 0 {
		time.Sleep(d)
		n.at = at
	}
	n.clock.Store(at.UnixMicro())
}

func (n *clusterNode) dial(ctx context.Context, to golden.Port) (net.Conn, error) {
	if n.script.nodes == 1 {
		nc, err := n.server.Dial(ctx)
		if to.Node != "" && err == nil {
			n.others = append(n.others, nc)
		}
		return nc, err
	}
	i := 1
	if to.Node != "" {
		i, _ = strconv.Atoi(strings.TrimPrefix(to.Node, "n"))
	}
	return n.server.DialContext(ctx, "tcp", netip.AddrPortFrom(n.server.NodeAddr(i-1), 9042).String())
}

// hook does nothing for actions of the other nodes, whose effects before causes, except that a
// killed node's connections end.
func (n *clusterNode) hook(what string) error {
	name, _, _ := strings.Cut(what, ":")
	switch strings.TrimRight(name, "0123456789") {
	case "leave":
		n.leaving = true
	case "kill":
		for _, nc := range n.others {
			nc.Close()
		}
	case "join", "restart", "repair", "freeze", "thaw", "start", "crash":
	default:
		return fmt.Errorf("unknown hook %q", what)
	}
	return nil
}

// balance runs the tablet balancer. A node leaves after the resize that was due before.
func (n *clusterNode) balance(start time.Time) error {
	if n.cfg.RingDelay > 0 && !start.IsZero() {
		start = start.Add(-2*n.cfg.RingDelay - topology.Leeway)
	}
	if !start.IsZero() {
		n.clock.Store(start.UnixMicro())
	}
	if n.resized {
		n.server.SetNodes(1)
	}
	n.server.BalanceTablets()
	n.resized = n.leaving
	return nil
}

// generation begins the next generation of the recording.
func (n *clusterNode) generation() error {
	g := n.generations[0]
	n.generations = n.generations[1:]
	_, err := n.server.Topology().AddGeneration(identity(g))
	return err
}

// before causes the effects that the recording shows next.
func (n *clusterNode) before(r *golden.Record, want *golden.Answer) error {
	if n.rule > 0 {
		_ = n.server.Faults().Remove(n.rule)
		n.rule = 0
	}
	if r.Kind == "event" {
		return n.nodeEvent(want)
	}
	for _, start := range golden.ShownStarts(want) {
		if len(n.generations) > 0 && !start.Before(n.generations[0].Start) {
			if err := n.generation(); err != nil {
				return err
			}
		}
	}
	if f, ok := n.fates[r]; ok && n.script.nodes > 1 {
		n.rule = n.server.Faults().MustAdd(failureRule(f))
	}
	return nil
}

// nodeEvent sends an event about another node, which is up or down from then on.
func (n *clusterNode) nodeEvent(want *golden.Answer) error {
	if want.Kind == "SCHEMA_CHANGE" {
		return nil
	}
	host, _, _ := strings.Cut(want.Change[1], ":")
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return err
	}
	change := scyllafake.NodeChange(want.Change[0])
	switch {
	case n.script.nodes > 1 && change == scyllafake.NodeDown:
		n.server.Freeze(1)
	case n.script.nodes > 1 && change == scyllafake.NodeUp:
		n.server.Thaw(1)
	case change == scyllafake.NodeNew:
		n.server.SetNodes(2)
	}
	n.server.PublishNode(change, addr)
	return nil
}

// failureRule is the rule for the next operation, which fails as recorded.
func failureRule(f golden.Fate) faults.Rule {
	e := faults.Effect{Disconnect: f.Answer.Closed}
	if !f.Answer.Closed {
		number := func(name string) int32 { v, _ := f.Answer.Detail[name].(int); return int32(v) }
		e.Failure = &faults.Failure{
			Code: cqlerr.Code(f.Answer.Code), Received: number("received"), BlockFor: number("blockfor"),
			DataPresent: f.Answer.Detail["data_present"] == 1,
		}
		if f.Answer.Detail["write_type"] == faults.BatchLog {
			e.Failure.WriteType = faults.BatchLog
		}
	}
	switch {
	case f.Now && len(f.Later) < 2:
		e.Fate = engine.FateApply
	case len(f.Later) > 0:
		e.Fate, e.Later = engine.FateLater, f.Later
	}
	return faults.Rule{Name: "as recorded", Match: faults.Match{Func: func(op engine.Op) bool { return !strings.HasPrefix(op.Keyspace, "system") }}, Count: 1, Effect: e}
}

// TestGolden_EveryRecording checks that every recording is played, or listed in
// testdata/not-played.txt with the reason.
func TestGolden_EveryRecording(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/not-played.txt")
	if err != nil {
		t.Fatal(err)
	}
	notPlayed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if line[0] == '#' {
			continue
		}
		version, rest, _ := strings.Cut(line, " ")
		name, reason, _ := strings.Cut(strings.TrimSpace(rest), " ")
		if strings.TrimSpace(reason) == "" {
			t.Errorf("no reason for %s", name)
		}
		notPlayed[version+" "+name] = true
	}
	for _, rel := range []release{release51, release2026} {
		played := map[string]bool{}
		for _, s := range slices.Concat(rel.scripts, rel.clusters) {
			played[s.name] = true
		}
		for _, d := range goldenDrivers {
			for _, name := range d.traces {
				played[name] = played[name] || d.rel.version == rel.version
			}
		}
		files, err := filepath.Glob(filepath.Join(rel.dir, "*.jsonl.gz"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no recordings in %s: %v", rel.dir, err)
		}
		for _, f := range files {
			name := strings.TrimSuffix(filepath.Base(f), ".jsonl.gz")
			listed := notPlayed[rel.version+" "+name]
			delete(notPlayed, rel.version+" "+name)
			if played[name] == listed {
				t.Errorf("%s %s: played %t, listed as not played %t", rel.version, name, played[name], listed)
			}
		}
	}
	for name := range notPlayed {
		t.Errorf("listed as not played, but there is no such recording: %s", name)
	}
}
