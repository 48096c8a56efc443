package relay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// A row of a table without numbers is refused, and the next rows of its aggregate are stored at
// once or some time later. They wait behind its dead letter, whichever reader finds them, and whether
// or not the row has an id.
func TestRelay_LaterRowsWaitBehindARefusedOne(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		id  bool
		typ string
		due time.Duration
	}{
		"due too late":         {true, "Moved", time.Minute},
		"without a type":       {true, "", 0},
		"without an id":        {false, "Moved", 0},
		"without id, due late": {false, "Moved", time.Minute},
	} {
		for _, tail := range []string{TailOn, TailOff} {
			for _, apart := range []time.Duration{0, 5 * time.Second} {
				t.Run(fmt.Sprintf("%s, tail %s, %s apart", name, tail, apart), func(t *testing.T) {
					t.Parallel()
					inBubble(t, func(t *testing.T) {
						w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.Tail, c.ConfidenceWindow = tail, 20*time.Second })
						defer w.close()
						w.exec("CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
						w.exec("CREATE TABLE shop.events (aggregate_id text, n int, id timeuuid, event_type text, payload text, due timestamp, PRIMARY KEY (aggregate_id, n)) WITH cdc = {'enabled': true, 'ttl': 259200}")
						w.cfg.TableKeyspace, w.cfg.Table = "shop", "events"
						w.cfg.Mapping = outbox.Mapping{
							Columns: map[string]string{"seq": outbox.NoColumn, "event_id": "id", "created_at": "id", "deliver_at": "due"}, AggregateType: "a",
						}
						r, stop := w.run()
						time.Sleep(30 * time.Second)
						var want []string
						n := 0
						write := func(aggregate string) {
							id := gocql.TimeUUID()
							n++
							w.exec("INSERT INTO shop.events (aggregate_id, n, id, event_type, payload) VALUES (?, ?, ?, 'Moved', '{}')", aggregate, n, id)
							want = append(want, id.String())
							time.Sleep(apart)
						}
						published := func() (got []string) {
							for _, d := range w.consume("Moved") {
								if d.AggregateID.String() == "held" {
									got = append(got, d.ID.String())
								}
							}
							return got
						}
						write("held")
						var id, typ any = gocql.TimeUUID(), tt.typ
						if !tt.id {
							id = nil
						}
						if tt.typ == "" {
							typ = nil
						}
						w.exec("INSERT INTO shop.events (aggregate_id, n, id, event_type, payload, due) VALUES ('held', 1000, ?, ?, '{}', ?)", id, typ, time.Now().Add(tt.due))
						for range 6 {
							write("held")
						}
						time.Sleep(time.Minute)
						write("held")
						time.Sleep(time.Minute)
						if got := published(); !slices.Equal(got, want[:1]) {
							t.Errorf("published %d events of the aggregate, want the one before the refused one", len(got))
						}
						letters := w.statuses()
						if letters[dlq.Suspended] != 1 || letters[dlq.Blocked] != 7 {
							t.Errorf("dead letters %v, want the refused one for a person and seven behind it", letters)
						}
						for id, entry := range w.open() {
							if entry.Status != dlq.Suspended {
								continue
							}
							l, err := w.deadLetters().Read(t.Context(), id)
							if err != nil || !strings.Contains(l.ErrorText, "edit or discard") {
								t.Errorf("dead letter %q, %v, want what can be done with it", l.ErrorText, err)
							}
							if err := w.deadLetters().Discard(t.Context(), id, dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
								t.Error(err)
							}
						}
						time.Sleep(time.Minute)
						write("held")
						time.Sleep(time.Minute)
						if got := published(); !slices.Equal(got, want) {
							t.Errorf("published %v, want %v", got, want)
						}
						if s := r.Status(); s.DeadLetters != 0 || s.InFlight != 0 {
							t.Errorf("%d dead letters, %d in flight, want none", s.DeadLetters, s.InFlight)
						}
						if err := stop(); err != nil {
							t.Error(err)
						}
					})
				})
			}
		}
	}
}
