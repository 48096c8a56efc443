package relay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

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

// A pass that begins while a column is missing waits for the column, as the one before it did:
// the relay ends for such a table at its start alone. A gap of the log that is to be scanned begins
// a pass, as do partitions that can be read back again.
func TestRelay_BeginsAPassWhileAColumnIsMissing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ column, typ, backfill string }{
		{"payload", "blob", BackfillAuto},
		{"event_type", "text", BackfillAuto},
		{"payload", "blob", BackfillOff},
	} {
		t.Run(tt.column+", backfill "+tt.backfill, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.Backfill = tt.backfill })
				defer w.close()
				var want []outbox.Event
				write := func(seq int64) {
					for a := range 6 {
						e := relaytest.Event(a, seq, "OrderUpdated")
						want = append(want, e)
						w.write(e)
					}
				}
				r, stop := w.run()
				write(1)
				time.Sleep(20 * time.Second)
				var readable func()
				if tt.backfill == BackfillOff {
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					readable = w.cluster.Fault(kfake.Fault{
						Keys: []kmsg.Key{kmsg.Metadata}, Topic: "OrderUpdated", Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1,
					}).Remove
					r, stop = w.run()
					time.Sleep(2 * time.Minute)
					if waitedFor(r) != 1 {
						t.Fatalf("problems %q, want a partition that cannot be read back", r.Status().Problems)
					}
				}
				w.exec("ALTER TABLE outbox.outbox_messages DROP " + tt.column)
				if time.Sleep(10 * time.Second); readable != nil {
					readable()
				}
				time.Sleep(2 * time.Minute)
				if p := strings.Join(r.Status().Problems, "; "); !strings.Contains(p, "starting: ") || !strings.Contains(p, tt.column) {
					t.Errorf("problems %q, want a start that waits for column %s", p, tt.column)
				}
				w.exec("ALTER TABLE outbox.outbox_messages ADD " + tt.column + " " + tt.typ)
				time.Sleep(time.Minute)
				write(2)
				time.Sleep(time.Minute)
				if p := r.Status().Problems; len(p) > 0 {
					t.Errorf("not ready: %q", p)
				}
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				w.once(want, "OrderUpdated")
			})
		})
	}
}

// An aggregate waits for an event whose lookup by key fails while a mapped column, or the table, is
// dropped: the database refuses the lookup as an invalid statement. The relay continues when it is
// back.
func TestRelay_LooksUpByKeyWhileAColumnIsMissing(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{TailOn, TailOff} {
		for _, drop := range []string{"tenant", "payload", "table"} {
			t.Run(drop+", tail "+tail, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
						// A scan after the ALTER TABLE would pass on what waits.
						c.Tail, c.GapWait, c.Backfill = tail, 10*time.Minute, BackfillOff
					})
					defer w.close()
					table := w.orderedTable("aggregate_id, seq", "seq ASC")
					w.exec("ALTER TABLE shop.events ADD tenant text")
					w.cfg.Mapping.RecordHeaders = map[string]string{"tenant": "tenant"}
					r, stop := w.run()
					time.Sleep(10 * time.Second)
					var all []outbox.Event
					for seq := range int64(4) {
						all = append(all, relaytest.Event(0, seq+1, "OrderUpdated"))
					}
					w.insert(&table, all[0], time.Time{})
					time.Sleep(10 * time.Second)
					w.insert(&table, all[2], time.Time{})
					time.Sleep(10 * time.Second)
					if n := r.Status().Waiting.Count; n != 1 {
						t.Fatalf("%d aggregates wait, want 1", n)
					}
					switch drop {
					case "table":
						w.exec("DROP TABLE shop.events")
					default:
						w.exec("ALTER TABLE shop.events DROP " + drop)
					}
					time.Sleep(time.Minute)
					names := map[string]string{"table": "does not exist"}
					if p := strings.Join(r.Status().Problems, "; "); !strings.Contains(p, cmp.Or(names[drop], drop)) {
						t.Errorf("problems %q, want what is missing", p)
					}
					switch drop {
					case "table":
						w.orderedTable("aggregate_id, seq", "seq ASC")
						w.exec("ALTER TABLE shop.events ADD tenant text")
					case "payload":
						w.exec("ALTER TABLE shop.events ADD payload blob")
					default:
						w.exec("ALTER TABLE shop.events ADD " + drop + " text")
					}
					time.Sleep(time.Minute)
					w.insert(&table, all[1], time.Time{})
					time.Sleep(time.Minute)
					if drop == "table" {
						w.insert(&table, all[2], time.Time{})
					}
					w.insert(&table, all[3], time.Time{})
					time.Sleep(time.Minute)
					if err := stop(); err != nil {
						t.Errorf("Run() error = %v", err)
					}
					var got []int64
					for _, d := range w.consume("OrderUpdated") {
						got = append(got, d.Sequence)
					}
					if !slices.Equal(got, []int64{1, 2, 3, 4}) {
						t.Errorf("published %v, want 1 to 4 in order", got)
					}
				})
			})
		}
	}
}
