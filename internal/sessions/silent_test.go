package sessions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// host is a node of the test's database. It answers each request with one byte.
type host struct {
	refuses, silent, closes atomic.Bool
	dialled                 atomic.Int64
}

// network is the test's database by the addresses of its nodes.
type network map[string]*host

func (n network) DialContext(_ context.Context, _, addr string) (net.Conn, error) {
	h := n[addr]
	h.dialled.Add(1)
	if h.refuses.Load() {
		return nil, errors.New("connection refused")
	}
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		for buf := make([]byte, 64); ; {
			if _, err := there.Read(buf); err != nil || h.closes.Load() {
				return
			}
			if !h.silent.Load() {
				if _, err := there.Write(buf[:1]); err != nil {
					return
				}
			}
		}
	}()
	return here, nil
}

const first, second = "10.0.0.1:9042", "10.0.0.2:9042"

// database is a database of two nodes in virtual time, with a session that has a connection
// to each.
type database struct {
	t     *testing.T
	net   network
	nodes *Nodes
	conns map[string]net.Conn
	log   strings.Builder
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	b := &database{t: t, net: network{first: new(host), second: new(host)}, conns: map[string]net.Conn{}}
	b.nodes = NewNodes(slog.New(slog.NewTextHandler(&b.log, nil)), prometheus.NewPedanticRegistry())
	for addr := range b.net {
		c, err := b.dial(addr)
		if err != nil {
			t.Fatal(err)
		}
		b.conns[addr] = c
	}
	return b
}

func (b *database) dial(addr string) (net.Conn, error) {
	return (&dialer{nodes: b.nodes, inner: b.net}).DialContext(b.t.Context(), "tcp", addr)
}

// request sends a request of the driver to a node, and returns whether it is answered before
// its connection is closed.
func (b *database) request(addr string) <-chan bool {
	n := b.nodes.at(addr)
	n.noteRequest()
	c := b.conns[addr]
	done := make(chan bool, 1)
	go func() {
		_, err := c.Write([]byte("SELECT"))
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		n.noteResponse()
		done <- err == nil
	}()
	return done
}

func (b *database) close() {
	for _, c := range b.conns {
		_ = c.Close()
	}
}

// down compares the nodes that do not answer, and their metric.
func (b *database) down(what string, want ...string) {
	b.t.Helper()
	if got := b.nodes.Down(); !slices.Equal(got, want) {
		b.t.Errorf("%s: the nodes %v are down, want %v", what, got, want)
	}
	for _, host := range []string{"10.0.0.1", "10.0.0.2"} {
		value := 0.0
		if slices.Contains(want, host) {
			value = 1
		}
		if got := testutil.ToFloat64(b.nodes.down.WithLabelValues(host)); got != value {
			b.t.Errorf("%s: the metric of %s is %v, want %v", what, host, got, value)
		}
	}
}

// A node that owes an answer and does not answer a probe either is cut off after twice the
// quiet time, however many requests wait. It is used again once it answers.
func TestNodes_CutsOffASilentNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newDatabase(t)
		defer b.close()
		b.net[first].silent.Store(true)
		began := time.Now()
		one := b.request(first)
		time.Sleep(2*quiet - time.Millisecond)
		synctest.Wait()
		b.down("before the probe has ended")
		if answered := <-one; answered {
			t.Error("a silent node has answered")
		}
		if took := time.Since(began); took < 2*quiet || took > 2*quiet+10*time.Millisecond {
			t.Errorf("the connection was closed after %v, want %v", took, 2*quiet)
		}
		b.down("after the probe", "10.0.0.1")
		if !strings.Contains(b.log.String(), `level=WARN msg="database node does not answer; its statements go to other nodes" node=10.0.0.1`) {
			t.Errorf("the log is %s", b.log.String())
		}

		began = time.Now()
		if _, err := b.dial(first); !errors.Is(err, errSilent) {
			t.Errorf("a connection to the silent node: %v, want %v", err, errSilent)
		}
		if took := time.Since(began); took > quiet {
			t.Errorf("it was refused after %v, want at most %v", took, quiet)
		}
		if answered := <-b.request(second); !answered {
			t.Error("the other node does not answer")
		}

		b.net[first].silent.Store(false)
		c, err := b.dial(first)
		if err != nil {
			t.Fatalf("a connection to the node that answers again: %v", err)
		}
		defer c.Close()
		b.down("after it answers again")
		if !strings.Contains(b.log.String(), `level=INFO msg="database node answers again" node=10.0.0.1`) {
			t.Errorf("the log is %s", b.log.String())
		}
	})
}

// The only node that is left is kept: there is no other one to use.
func TestNodes_KeepsTheLastNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newDatabase(t)
		defer b.close()
		if err := b.conns[second].Close(); err != nil {
			t.Fatal(err)
		}
		b.net[first].silent.Store(true)
		one := b.request(first)
		time.Sleep(time.Minute)
		synctest.Wait()
		b.down("the last node")
		select {
		case <-one:
			t.Error("the connection to the last node is closed")
		default:
		}
	})
}

// A node that answers probes is slow, not silent.
func TestNodes_KeepsASlowNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newDatabase(t)
		defer b.close()
		n := b.nodes.at(first)
		n.noteRequest() // a request that takes a minute, on a connection of its own
		dialled := b.net[first].dialled.Load()
		time.Sleep(time.Minute)
		n.noteResponse()
		b.down("a slow node")
		probes := b.net[first].dialled.Load() - dialled
		if least, most := int64(40), int64(70); probes < least || probes > most {
			t.Errorf("%d probes in a minute, want about one a second", probes)
		}
		time.Sleep(10 * time.Second)
		if more := b.net[first].dialled.Load() - dialled - probes; more > 1 {
			t.Errorf("%d probes after the answer, want none", more)
		}
	})
}

// A node that sends anything is not probed: it is busy with other requests.
func TestNodes_DoesNotProbeABusyNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newDatabase(t)
		defer b.close()
		n := b.nodes.at(first)
		n.noteRequest()
		dialled := b.net[first].dialled.Load()
		for range 100 {
			time.Sleep(quiet / 2)
			if answered := <-b.request(first); !answered {
				t.Fatal("no answer")
			}
		}
		if probes := b.net[first].dialled.Load() - dialled; probes != 0 {
			t.Errorf("%d probes of a node that answers", probes)
		}
		n.noteResponse()
	})
}

// What a connection shows of its node when it is opened and read.
func TestDialer_Connections(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		prepare func(*host)
		ctx     func(context.Context) context.Context
		heard   bool // the connection was used before
		down    bool
	}{
		"it answers":                       {},
		"it refuses":                       {prepare: func(h *host) { h.refuses.Store(true) }, down: true},
		"it refuses the shard-aware port":  {prepare: func(h *host) { h.refuses.Store(true) }, ctx: shardAware},
		"it refuses after the caller left": {prepare: func(h *host) { h.refuses.Store(true) }, ctx: endContext},
		"it closes at once":                {prepare: func(h *host) { h.closes.Store(true) }, down: true},
		"it closes after an answer":        {prepare: func(h *host) { h.closes.Store(true) }, heard: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newDatabase(t)
				defer b.close()
				h := b.net[first]
				ctx := t.Context()
				if tt.ctx != nil {
					ctx = tt.ctx(ctx)
				}
				if !tt.heard && tt.prepare != nil {
					tt.prepare(h)
				}
				c, err := (&dialer{nodes: b.nodes, inner: b.net}).DialContext(ctx, "tcp", first)
				if (err != nil) != h.refuses.Load() {
					t.Fatalf("DialContext() = %v", err)
				}
				if err == nil {
					defer c.Close()
					exchange(c)
					if tt.heard {
						tt.prepare(h)
						exchange(c)
					}
				}
				synctest.Wait()
				var want []string
				if tt.down {
					want = []string{"10.0.0.1"}
				}
				b.down(name, want...)
			})
		})
	}
}

// ofShard is the context of a connection to the shard-aware port, which chooses its shard by
// its own port.
type ofShard struct{ context.Context }

func (c ofShard) Value(key any) any {
	if fmt.Sprintf("%T", key) == "gocql.scyllaSourcePortCtx" {
		return uint16(50001)
	}
	return c.Context.Value(key)
}

func shardAware(ctx context.Context) context.Context { return ofShard{ctx} }

func endContext(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// exchange sends a request and reads its answer, if there is one.
func exchange(c net.Conn) {
	if _, err := c.Write([]byte("SELECT")); err == nil {
		_, _ = c.Read(make([]byte, 1)) // a closed connection is what some tests want
	}
}

// Probe asks every node, for a report; it cuts off none.
func TestNodes_Probe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newDatabase(t)
		defer b.close()
		if got := b.nodes.Probe(t.Context()); len(got) != 0 {
			t.Errorf("the nodes %v are down", got)
		}
		b.net[first].silent.Store(true)
		b.net[second].refuses.Store(true)
		began := time.Now()
		if got := b.nodes.Probe(t.Context()); !slices.Equal(got, []string{"10.0.0.1", "10.0.0.2"}) {
			t.Errorf("the nodes %v are down, want both", got)
		}
		if took := time.Since(began); took > 2*quiet {
			t.Errorf("the probes took %v, want at most %v, all at the same time", took, 2*quiet)
		}
	})
	if got := (*Nodes)(nil).Down(); got != nil {
		t.Errorf("without nodes %v are down", got)
	}
}

// hosts is a policy that returns the hosts in their order.
type hosts struct {
	gocql.HostSelectionPolicy
	all            []*gocql.HostInfo
	added, removed []string
}

type picked struct {
	gocql.SelectedHost
	info *gocql.HostInfo
}

func (p picked) Info() *gocql.HostInfo { return p.info }

func (h *hosts) Pick(gocql.ExecutableQuery) gocql.NextHost {
	i := 0
	return func() gocql.SelectedHost {
		if i == len(h.all) {
			return nil
		}
		i++
		return picked{info: h.all[i-1]}
	}
}

func hostAt(i byte) *gocql.HostInfo {
	h := gocql.HostInfoBuilder{ConnectAddress: net.IPv4(10, 0, 0, i), Port: 9042}.Build()
	return &h
}

func (h *hosts) AddHost(info *gocql.HostInfo) {
	h.added = append(h.added, info.ConnectAddress().String())
}

// The driver skips the nodes that do not answer, and learns of all hosts.
func TestPolicy(t *testing.T) {
	t.Parallel()
	nodes := NewNodes(slog.New(slog.DiscardHandler), nil)
	inner := new(hosts)
	for i := range 3 {
		inner.all = append(inner.all, hostAt(byte(i)))
	}
	p := policy{inner, nodes}
	nodes.at("10.0.0.1:9042").set(true, errSilent)
	var got []string
	for next := p.Pick(nil); ; {
		h := next()
		if h == nil {
			break
		}
		if h.Info() == nil {
			got = append(got, "skipped")
			continue
		}
		got = append(got, h.Info().ConnectAddress().String())
	}
	if want := []string{"10.0.0.0", "skipped", "10.0.0.2"}; !slices.Equal(got, want) {
		t.Errorf("the hosts are %v, want %v", got, want)
	}
	p.AddHosts(inner.all)
	if want := []string{"10.0.0.0", "10.0.0.1", "10.0.0.2"}; !slices.Equal(inner.added, want) {
		t.Errorf("the hosts %v are added, want %v", inner.added, want)
	}
}

func (h *hosts) RemoveHost(info *gocql.HostInfo) {
	h.removed = append(h.removed, info.ConnectAddress().String())
}

// A node that left the cluster is not down any more, also if a connection that was in progress
// fails then; one that joins at its address counts again.
func TestPolicy_NodeLeaves(t *testing.T) {
	t.Parallel()
	inner, nodes := new(hosts), NewNodes(slog.New(slog.DiscardHandler), nil)
	p := policy{inner, nodes}
	check := func(what string, down []string, series int) {
		t.Helper()
		if got, n := nodes.Down(), testutil.CollectAndCount(nodes.down); !slices.Equal(got, down) || n != series {
			t.Errorf("%s: the nodes %v are down, and %d have metrics; want %v and %d", what, got, n, down, series)
		}
	}
	gone, stays := hostAt(1), hostAt(2)
	p.AddHosts([]*gocql.HostInfo{gone, stays})
	nodes.of(gone).set(true, errSilent)
	check("the node is down", []string{"10.0.0.1"}, 2)
	p.RemoveHost(gone)
	check("it left", nil, 1)
	if !slices.Equal(inner.removed, []string{"10.0.0.1"}) {
		t.Errorf("the hosts %v are removed", inner.removed)
	}
	nodes.at("10.0.0.1:9042").set(false, nil)
	nodes.at("10.0.0.1:9042").set(true, errSilent)
	check("a connection to it fails", nil, 1)
	p.AddHost(hostAt(1))
	check("a node joined at its address", []string{"10.0.0.1"}, 2)
}

// The cache of the driver's hosts is bounded; the nodes are at these addresses.
func TestNodes_HostsAreBounded(t *testing.T) {
	t.Parallel()
	nodes := NewNodes(slog.New(slog.DiscardHandler), nil)
	one := nodes.at("10.0.0.1:9042")
	for range 3 * maxHosts {
		if got := nodes.of(hostAt(1)); got != one {
			t.Fatal("a host of the same address is another node")
		}
	}
	n := 0
	nodes.hosts.Range(func(any, any) bool { n++; return true })
	if n > maxHosts {
		t.Errorf("%d hosts are in the cache, want at most %d", n, maxHosts)
	}
	for addr, want := range map[string]string{"10.0.0.2:19042": "10.0.0.2", "[::1]:9042": "::1", "10.0.0.3": "10.0.0.3"} {
		if got := nodes.at(addr).addr; got != want {
			t.Errorf("the node at %s is %s, want %s", addr, got, want)
		}
	}
	if len(nodes.byHost) != 4 {
		t.Errorf("%s: %d nodes, want 4", fmt.Sprint(nodes.byHost), len(nodes.byHost))
	}
}
