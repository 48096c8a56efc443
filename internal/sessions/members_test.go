package sessions

import (
	"log/slog"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
)

// A node that is down leaves the cluster without an event: it is no member in three comparisons.
// One that is missing for a shorter time, or whose row lacks its addresses, remains.
func TestNodes_CompareMembers(t *testing.T) {
	t.Parallel()
	nodes := NewNodes(slog.New(slog.DiscardHandler), nil)
	p := policy{new(hosts), nodes}
	id := "01a1e0a2-0000-4000-8000-000000000001"
	built := gocql.HostInfoBuilder{ConnectAddress: net.IPv4(10, 0, 0, 1), Port: 9042, HostId: id}.Build()
	h := &built
	p.AddHosts([]*gocql.HostInfo{h, hostAt(2)})
	nodes.of(h).set(true, errSilent)
	check := func(what string, down []string, series int) {
		t.Helper()
		if got, n := nodes.Down(), testutil.CollectAndCount(nodes.down); !slices.Equal(got, down) || n != series {
			t.Errorf("%s: the nodes %v are down, and %d have metrics; want %v and %d", what, got, n, down, series)
		}
	}
	all := map[string]bool{"10.0.0.1": true, "10.0.0.2": true}
	without := map[string]bool{"10.0.0.2": true, "<nil>": true}
	byID := map[string]bool{"10.0.0.2": true, id: true}
	down := []string{"10.0.0.1"}
	nodes.compare(all)
	check("a member", down, 2)
	for range 3 {
		nodes.compare(without)
		nodes.compare(without)
		check("missing for a moment", down, 2)
		nodes.compare(byID)
		check("a row without addresses", down, 2)
	}
	for range absences {
		nodes.compare(without)
	}
	check("missing for long", nil, 1)
	nodes.compare(all)
	check("it is back", down, 2)
	p.RemoveHost(h)
	check("the driver removed it", nil, 1)
	nodes.compare(all)
	check("it is still a member", down, 2)
}

// The members are read from the database at intervals, until its sessions are closed. Its own
// node is one; an address that was a node before is not.
func TestNodes_FollowMembers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, err := scyllafake.Start(scyllafake.Config{Tokens: 4})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		nodes := NewNodes(slog.New(slog.DiscardHandler), nil)
		open := func() *gocql.Session {
			c := gocql.NewCluster("127.0.0.1")
			c.Dialer, c.ProtoVersion, c.Timeout, c.ConnectTimeout = db, 4, time.Minute, time.Minute
			nodes.Watch(c)
			s, err := c.CreateSession()
			if err != nil {
				t.Fatal(err)
			}
			nodes.Follow(s)
			return s
		}
		first, second := open(), open()
		nodes.at("10.0.0.9:9042").set(true, errSilent)
		first.Close()
		time.Sleep((absences-1)*compareEvery + compareEvery/2)
		if got := nodes.Down(); !slices.Equal(got, []string{"10.0.0.9"}) {
			t.Errorf("the nodes %v are down before the third comparison", got)
		}
		time.Sleep(compareEvery)
		synctest.Wait()
		if got, n := nodes.Down(), testutil.CollectAndCount(nodes.down); len(got) != 0 || n != 1 {
			t.Errorf("the nodes %v are down, and %d have metrics; want the member alone", got, n)
		}
		second.Close()
		time.Sleep(2 * compareEvery)
		if n := len(nodes.followed); n != 0 {
			t.Errorf("%d closed sessions are followed", n)
		}
	})
}
