package upstream

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
)

// inProcess marks the process that the defect ends.
const inProcess = "UPSTREAM_TEST_PROCESS"

// docs/upstream/scylla-cdc-go.md: the generation that the reader is about to read vanishes
// between its query for the start and that for the streams. The reader ends the process.
func TestScyllaCDCGo_GenerationWithoutStreams(t *testing.T) {
	if os.Getenv(inProcess) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestScyllaCDCGo_GenerationWithoutStreams$")
		cmd.Env = append(os.Environ(), inProcess+"=1")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "integer divide by zero") || !strings.Contains(string(out), "scylla-cdc-go") {
			t.Errorf("the process ended with %v, want a division by zero in scylla-cdc-go:\n%s", err, out)
		}
		return
	}
	scyllatest.Bubble(t, func(t *testing.T) {
		hook := &vanishing{}
		node, err := scyllafake.Start(scyllafake.Config{Tokens: 4, TabletInterval: time.Hour, Hook: hook})
		must(t, err)
		session, err := scyllatest.Cluster(node, "").CreateSession()
		must(t, err)
		for _, stmt := range []string{
			"CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} AND tablets = {'enabled': true}",
			"CREATE TABLE ks.t (k int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 600} AND tablets = {'min_tablet_count': 1}",
		} {
			must(t, session.Query(stmt).Exec())
		}
		_, err = node.Faults().Node().Resize(faults.Resize{Keyspace: "ks", Table: "t", In: time.Minute + 5*time.Second})
		must(t, err)
		time.Sleep(20 * time.Minute) // the first generation has ended and may be removed
		hook.remove = node.BalanceTablets
		reader, err := scyllacdc.NewReader(t.Context(), &scyllacdc.ReaderConfig{
			Session: session, TableNames: []string{"ks.t"},
			ChangeConsumerFactory: scyllacdc.MakeChangeConsumerFactoryFromFunc(func(context.Context, string, scyllacdc.Change) error { return nil }),
			Advanced:              scyllacdc.AdvancedReaderConfig{ChangeAgeLimit: time.Hour},
		})
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must(t, reader.Run(ctx))
	})
}

// vanishing removes ended generations once before their streams are read.
type vanishing struct {
	remove func()
	done   atomic.Bool
}

// Before implements engine.Hook.
func (v *vanishing) Before(_ context.Context, op engine.Op) engine.Verdict {
	if v.remove != nil && op.Table == "cdc_streams" && !v.done.Swap(true) {
		v.remove()
	}
	return engine.Verdict{}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
