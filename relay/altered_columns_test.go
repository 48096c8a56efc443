package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A mapped column is dropped under a running relay, and added again some time later. Events that
// are written in between wait, with a reason, and everything is published without a restart of the
// process once the table fits.
func TestRelay_ContinuesWhenADroppedColumnIsBack(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for _, tt := range []struct {
		name, column, again string
		mapping             func(m *outbox.Mapping)
	}{
		{"a record header", "tenant", "text", func(m *outbox.Mapping) { m.RecordHeaders = map[string]string{"tenant": "tenant"} }},
		{"a record header of another type", "tenant", "int", func(m *outbox.Mapping) { m.RecordHeaders = map[string]string{"tenant": "tenant"} }},
		{"the payload", "tenant", "text", func(m *outbox.Mapping) { m.Columns["payload"] = "tenant" }},
		{"the payload as a blob", "tenant", "blob", func(m *outbox.Mapping) { m.Columns["payload"] = "tenant" }},
	} {
		for _, tail := range []string{TailOn, TailOff} {
			for _, gone := range []time.Duration{6 * time.Second, 20 * time.Second, 5 * time.Minute} {
				t.Run(fmt.Sprintf("%s, tail %s, gone for %s", tt.name, tail, gone), func(t *testing.T) {
					t.Parallel()
					inBubble(t, func(t *testing.T) {
						w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.Tail, c.ConfidenceWindow = tail, 10*time.Second })
						defer w.close()
						w.exec("CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
						w.exec("CREATE TABLE shop.events (aggregate_id text, id timeuuid, event_type text, payload text, tenant text, PRIMARY KEY (aggregate_id, id)) WITH cdc = {'enabled': true, 'ttl': 259200}")
						w.cfg.TableKeyspace, w.cfg.Table = "shop", "events"
						w.cfg.Mapping = outbox.Mapping{Columns: map[string]string{"seq": outbox.NoColumn, "event_id": "id", "created_at": "id"}, AggregateType: "a"}
						tt.mapping(&w.cfg.Mapping)
						r, stop := w.run()
						time.Sleep(20 * time.Second)
						var want []string
						write := func() {
							id := gocql.TimeUUID()
							want = append(want, id.String())
							w.exec("INSERT INTO shop.events (aggregate_id, id, event_type, payload) VALUES ('d', ?, 'Moved', '{}')", id)
						}
						write()
						time.Sleep(2 * time.Second)
						w.exec("ALTER TABLE shop.events DROP tenant")
						write()
						time.Sleep(gone)
						if p := strings.Join(r.Status().Problems, "; "); !strings.Contains(p, "tenant") {
							t.Errorf("problems %q, want the missing column", p)
						}
						w.exec("ALTER TABLE shop.events ADD tenant " + tt.again)
						write()
						time.Sleep(2 * time.Minute)
						if p := r.Status().Problems; len(p) > 0 && !strings.HasPrefix(p[0], "the CDC log may lack") {
							t.Errorf("not ready: %q", p)
						}
						if err := stop(); err != nil {
							t.Error(err)
						}
						var got []string
						for _, d := range w.consume("Moved") {
							got = append(got, d.ID.String())
						}
						if strings.Join(got, " ") != strings.Join(want, " ") {
							t.Errorf("published %v, want %v", got, want)
						}
					})
				})
			}
		}
	}
}
