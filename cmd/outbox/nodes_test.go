package main

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/doctor"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// startThreeNodes runs a cluster of three nodes until the test ends.
func startThreeNodes(t *testing.T) *scyllafake.Server {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs more than one loopback address")
	}
	host, err := netip.ParseAddrPort(freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the addresses of the other nodes
		freeAddr(t)
	}
	db, err := scyllafake.Start(scyllafake.Config{Nodes: 3, Tokens: 12, Addr: netip.AddrPortFrom(host.Addr(), 0).String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A session of any command notices a node that is silent or refuses connections; doctor,
// the metrics and /readyz name it, and statements go to the other nodes.
func TestScylla_NamesTheNodeThatIsAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*scyllafake.Server){
		"silent": func(s *scyllafake.Server) { s.Freeze(1) },
		"dead":   func(s *scyllafake.Server) { s.Kill(1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := startThreeNodes(t)
			node := db.NodeAddr(1).String()
			away(db)
			defer db.Thaw(1)
			c, err := parseConfig(t, "", nil, "--scylla-hosts", db.Addr(), "--scylla-timeout", "1m")
			if err != nil {
				t.Fatal(err)
			}
			found := doctor.Check(t.Context(), c)
			if len(found) < 2 || found[1].OK || !strings.Contains(found[1].Detail, node) || found[1].Fix == "" {
				t.Errorf("doctor found %+v, want %s named", found, node)
			}

			reg := prometheus.NewRegistry()
			c.Scylla.Nodes = sessions.NewNodes(slog.New(slog.DiscardHandler), reg)
			s, err := c.Scylla.Session("")
			if err != nil {
				t.Fatal(err)
			}
			defer sessions.Close(s)
			for end := time.Now().Add(5 * time.Minute); len(c.Scylla.Nodes.Down()) == 0 && time.Now().Before(end); {
				if err := s.Query("SELECT key FROM system.local").WithContext(t.Context()).Idempotent(true).Exec(); err != nil {
					t.Fatalf("a statement while a node is away: %v", err)
				}
			}
			want := "# HELP outbox_scylla_node_down 1 while a node of the database does not answer or refuses connections, by its address; 0 while it answers.\n# TYPE outbox_scylla_node_down gauge\n"
			for i, value := range []string{"0", "1", "0"} {
				want += `outbox_scylla_node_down{node="` + db.NodeAddr(i).String() + `"} ` + value + "\n"
			}
			if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "outbox_scylla_node_down"); err != nil {
				t.Error(err)
			}
			a := &app.OpsServer{Nodes: c.Scylla.Nodes}
			works := httpapi.Readiness(func() (bool, any) { return true, struct{ Streams int }{7} })
			a.Works(works)
			ready, detail := a.Readiness()
			if b, err := json.Marshal(detail); err != nil || !ready || string(b) != `{"Streams":7,"database_nodes_down":["`+node+`"]}` {
				t.Errorf("readiness() = %t, %s, %v", ready, b, err)
			}
		})
	}
}

// Commands make their sessions with the shared observation of nodes.
func TestScylla_SessionsAreObserved(t *testing.T) {
	t.Parallel()
	c, err := parseConfig(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := c.Scylla.Cluster("")
	if err != nil || cluster.Dialer == nil || cluster.StreamObserver == nil || cluster.ReconnectInterval != sessions.ReconnectInterval {
		t.Errorf("the driver's configuration observes no nodes: %+v, %v", cluster, err)
	}
}

// Every command with an ops listener stays ready while a node of the database is down: a
// probe receives a complete response that names the node, from the listener and from the API.
func TestScylla_EveryCommandIsReadyWithoutANode(t *testing.T) {
	t.Parallel()
	db := startThreeNodes(t)
	c, err := parseConfig(t, "", nil, "--scylla-hosts", db.Addr(), "--scylla-timeout", "1m")
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Scylla.Session("")
	if err != nil {
		t.Fatal(err)
	}
	err = schema.Migrate(t.Context(), s, schema.Options{Components: schema.Components()})
	sessions.Close(s)
	if err != nil {
		t.Fatal(err)
	}
	node := db.NodeAddr(1).String()
	db.Kill(1)
	broker := world.StartBroker(t)
	eachCommand(func(name string, cmd *cobra.Command) {
		x, ok := listenerCommands[name]
		if !ok {
			return // TestAdminListener_MetricsAreNowhereElse finds it
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addrs := []string{freeAddr(t)}
			args := append(strings.Fields(name), "--ops-addr", addrs[0], "--scylla-hosts", db.Addr(), "--scylla-timeout", "1m")
			if cmd.Flags().Lookup("kafka-seeds") != nil {
				args = append(args, "--kafka-seeds", strings.Join(broker.ListenAddrs(), ","))
			}
			for _, flag := range x.apis {
				addrs = append(addrs, freeAddr(t))
				args = append(args, flag, addrs[len(addrs)-1])
			}
			for _, arg := range x.more {
				if arg == "TOKENS" {
					_, arg = token(t, "operator")
				}
				args = append(args, arg)
			}
			running(t, args)
			until(t, addrs[0], 200, `"database_nodes_down":["`+node+`"]`)
			for _, addr := range addrs {
				until(t, addr, 200, "{")
			}
			if _, _, text := sendRequest(t, "GET", "http://"+addrs[0]+"/metrics", "", ""); !strings.Contains(text, "\noutbox_ops_listener_panics_total 0\n") {
				t.Error("a request to the ops listener panicked")
			}
		})
	})
}
