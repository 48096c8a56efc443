package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// broker starts a Kafka with the topic things, which the relay r has used.
func (b *fixture) broker(t *testing.T) *kgo.Client {
	t.Helper()
	cluster := world.StartBroker(t, kfake.SeedTopics(3, "things"))
	b.reconfigure(t, func(c *Config) {
		c.Relay = "r"
		c.Kafka = world.Kafka{kgo.SeedBrokers(cluster.ListenAddrs()...)}
	})
	client, err := b.cfg.Kafka.Client(kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if err := b.Session.Query("INSERT INTO outbox.relay_topics (relay, table_name, topic) VALUES ('r', ?, 'things')", testTable).Exec(); err != nil {
		t.Fatal(err)
	}
	return client
}

// event stores an event.
func (b *fixture) event(t *testing.T) outbox.Event {
	t.Helper()
	e := outbox.Event{
		ID: outbox.NewID(), AggregateID: outbox.NewID(), Sequence: 1, AggregateType: "thing", Type: "ThingHappened", Payload: []byte("{}"), CreatedAt: time.Now(),
	}
	batch := b.Session.Batch(gocql.LoggedBatch)
	if err := outbox.Append(batch, e); err != nil {
		t.Fatal(err)
	}
	if err := batch.Exec(); err != nil {
		t.Fatal(err)
	}
	return e
}

func publish(t *testing.T, client *kgo.Client, e *outbox.Event, more ...kgo.RecordHeader) *kgo.Record {
	t.Helper()
	r, err := client.ProduceSync(t.Context(), &kgo.Record{
		Topic: "things", Key: e.Key(), Value: e.Payload, Headers: append(outbox.AppendHeaders[kgo.RecordHeader](nil, e, "/test"), more...),
	}).First()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// kinds returns the kinds of the steps in order.
func kinds(steps []BiographyStep) (out []string) {
	for _, s := range steps {
		out = append(out, s.Kind)
	}
	return out
}

func header(key, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: key, Value: []byte(value)}
}

// The biography contains the reader, the attempts and the state of the breaker from the
// headers of the record.
func TestBiography_OfAPublishedEvent(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	client := b.broker(t)
	for range 50 {
		other := b.event(t)
		publish(t, client, &other)
	}
	for _, c := range []struct {
		name              string
		headers           []kgo.RecordHeader
		captured, breaker string
		attempts          int
		says              string // in the step or in a gap
	}{
		{"by the tail", []kgo.RecordHeader{header("outbox-captured", "tail")}, "tail", "closed", 1, "captured by the tail"},
		{"by the sweep, as a probe", []kgo.RecordHeader{header("outbox-captured", "sweep"), header("outbox-breaker", "half-open")}, "sweep", "half-open", 1, "captured by the sweep"},
		{"by its key, again", []kgo.RecordHeader{header("outbox-captured", "key"), header("outbox-attempts", "3")}, "key", "closed", 3, "lookup in the outbox table"},
		{"by a backfill", []kgo.RecordHeader{header("outbox-captured", "backfill"), header("outbox-backfill", "1")}, "backfill", "closed", 1, "no longer contained it"},
		{"by a backfill of an earlier version", []kgo.RecordHeader{header("outbox-backfill", "1")}, "backfill", "", 0, "does not contain the attempt"},
		{"by an earlier version", nil, "", "", 0, "does not contain the reader, the attempt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := b.event(t)
			r := publish(t, client, &e, c.headers...)
			for _, query := range []string{"", "?aggregate_id=" + e.AggregateID.String()} {
				var got BiographyBody
				b.ask(t, access.Viewer, "GET", "/v1/events/"+e.ID.String()+query, "").into(t, http.StatusOK, &got)
				want := []string{"stored", "captured", "published"}
				if c.captured == "" {
					want = []string{"stored", "published"}
				}
				if k := kinds(got.Steps); !slices.Equal(k, want) {
					t.Fatalf("%q: steps %v: %+v", query, k, got)
				}
				pub := got.Steps[len(got.Steps)-1]
				if pub.Topic != "things" || *pub.Partition != r.Partition || *pub.Offset != r.Offset || pub.At == nil || !strings.Contains(pub.Source, "things") {
					t.Errorf("%q: published %+v, want %d@%d", query, pub, r.Partition, r.Offset)
				}
				if got.AggregateID != e.AggregateID.String() || got.Sequence != 1 || got.EventType != "ThingHappened" || got.DeadLetter {
					t.Errorf("%q: %+v", query, got)
				}
				if got.Captured != c.captured || got.Breaker != c.breaker || got.Attempts != c.attempts {
					t.Errorf("%q: captured %q, attempts %d, breaker %q, want %+v", query, got.Captured, got.Attempts, got.Breaker, c)
				}
				if text := fmt.Sprint(got.Steps, got.Gaps); !strings.Contains(text, c.says) || (c.attempts > 0) != (len(got.Gaps) == 0) {
					t.Errorf("%q: %s, want %q, and a gap only where something is not said", query, text, c.says)
				}
			}
		})
	}
}

// observed returns the state of records, or fails.
type observed struct {
	fakeSubscriptions
	err error
}

func (o observed) Of(_ context.Context, r *kgo.Record) ([]subscriptions.Progress, error) {
	return []subscriptions.Progress{{Subscription: r.Topic, State: subscriptions.ProgressWaiting, Detail: strconv.FormatInt(r.Offset, 10)}}, o.err
}

// The biography contains the state in subscriptions of a record that was found, also by the
// dead letter of its event, and a gap if it is not known.
func TestBiography_OfSubscriptions(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	client := b.broker(t)
	b.reconfigure(t, func(c *Config) { c.Subscriptions = observed{} })
	e := b.event(t)
	biography := func() (got BiographyBody) {
		t.Helper()
		b.ask(t, access.Viewer, "GET", "/v1/events/"+e.ID.String(), "").into(t, http.StatusOK, &got)
		return got
	}
	l := testDeadLetter(e.AggregateID.String(), 1)
	l.EventID, l.Status = e.ID.UUID(), dlq.Pending
	b.writeDeadLetter(t, l, time.Time{})
	if got := biography(); got.Subscriptions == nil || len(got.Subscriptions) > 0 {
		t.Errorf("before it is published: %+v", got)
	}
	r := publish(t, client, &e)
	if _, err := b.store.Claim(t.Context(), e.ID.UUID(), "relay-1", time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := b.store.Resolve(t.Context(), e.ID.UUID(), "relay-1", dlq.Outcome{Kind: dlq.OutcomeReplayed, Topic: "things", Partition: r.Partition, Offset: r.Offset}); err != nil {
		t.Fatal(err)
	}
	want, _ := observed{}.Of(t.Context(), r)
	if got := biography(); !slices.Equal(got.Subscriptions, want) {
		t.Errorf("subscriptions %+v, want %+v", got.Subscriptions, want)
	}
	e = b.event(t)
	r = publish(t, client, &e, header("outbox-captured", "tail"))
	want, _ = observed{}.Of(t.Context(), r)
	if got := biography(); !slices.Equal(got.Subscriptions, want) {
		t.Errorf("of an event without a dead letter: %+v, want %+v", got.Subscriptions, want)
	}
	b.reconfigure(t, func(c *Config) { c.Subscriptions = observed{err: errors.New("no luck")} })
	if got := biography(); len(got.Subscriptions) > 0 || !slices.ContainsFunc(got.Gaps, func(g string) bool { return strings.Contains(g, "no luck") }) {
		t.Errorf("unknown: %+v", got)
	}
}

// The record of a replay contains the attempts and the breaker, and its dead letter the
// reader, also after the record is gone.
func TestBiography_OfAReplayedEvent(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	client := b.broker(t)
	for _, c := range []struct {
		name, metadata, captured, breaker string
		headers                           []kgo.RecordHeader
		lost                              bool
		attempts, gaps                    int
	}{
		{"as a probe", "sweep", "sweep", "half-open", []kgo.RecordHeader{header("outbox-captured", "sweep"), header("outbox-attempts", "6"), header("outbox-breaker", "half-open")}, false, 6, 0},
		{"its record is gone", "sweep", "sweep", "", nil, true, 6, 1},
		{"by a relay of an earlier version", "", "", "", nil, false, 6, 2},
		{"of a dead letter of an earlier version", "", "", "closed", []kgo.RecordHeader{header("outbox-attempts", "6")}, false, 6, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := b.event(t)
			l := testDeadLetter(e.AggregateID.String(), 1)
			l.EventID, l.Attempts, l.Status = e.ID.UUID(), 5, dlq.Pending
			l.Metadata = map[string]string{"breaker": "open"}
			if c.metadata != "" {
				l.Metadata["captured"] = c.metadata
			}
			b.writeDeadLetter(t, l, time.Time{})
			var got BiographyBody
			b.ask(t, access.Viewer, "GET", "/v1/events/"+e.ID.String(), "").into(t, http.StatusOK, &got)
			if got.Captured != c.captured || got.Attempts != 5 || got.Breaker != "open" {
				t.Errorf("while it is dead: captured %q, attempts %d, breaker %q", got.Captured, got.Attempts, got.Breaker)
			}
			r := publish(t, client, &e, c.headers...)
			if c.lost {
				r.Offset += 1000
			}
			if _, err := b.store.Claim(t.Context(), e.ID.UUID(), "relay-1", time.Minute); err != nil {
				t.Fatal(err)
			}
			if err := b.store.Resolve(t.Context(), e.ID.UUID(), "relay-1", dlq.Outcome{Kind: dlq.OutcomeReplayed, Topic: "things", Partition: r.Partition, Offset: r.Offset}); err != nil {
				t.Fatal(err)
			}
			got = BiographyBody{}
			b.ask(t, access.Viewer, "GET", "/v1/events/"+e.ID.String(), "").into(t, http.StatusOK, &got)
			if got.Captured != c.captured || got.Attempts != c.attempts || got.Breaker != c.breaker || len(got.Gaps) != c.gaps {
				t.Errorf("captured %q, attempts %d, breaker %q, gaps %q, want %+v", got.Captured, got.Attempts, got.Breaker, got.Gaps, c)
			}
			if k := kinds(got.Steps); c.captured != "" && (k[0] != "stored" || k[1] != "captured") || !slices.Contains(k, "published") {
				t.Errorf("steps %v", k)
			}
		})
	}
}

// Rows of mapped tables are found, also by ids that are not UUIDs.
func TestBiography_OfMappedTables(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, stmt := range []string{
		"CREATE TABLE outbox.carts (aggregateid text, id text, aggregatetype text, type text, payload text, PRIMARY KEY (aggregateid, id))",
		"CREATE TABLE outbox.loose (id text PRIMARY KEY, aggregateid text, aggregatetype text, type text, payload text)",
		"CREATE TABLE outbox.counted (customer bigint, n int, id int, what text, body blob, PRIMARY KEY (customer, n))",
		"CREATE TABLE outbox.daily (day date, aggregateid text, id text, aggregatetype text, type text, payload text, PRIMARY KEY (day, id))",
		"INSERT INTO outbox.carts (aggregateid, id, aggregatetype, type, payload) VALUES ('cart 7', 'c-1', 'cart', 'CartFilled', '{}') USING TTL 86400",
		"INSERT INTO outbox.loose (aggregateid, id, aggregatetype, type, payload) VALUES ('cart 8', 'l-1', 'cart', 'CartLost', '{}')",
		"INSERT INTO outbox.counted (customer, n, id, what, body) VALUES (42, 3, 1042, 'Counted', 0x00)",
	} {
		if err := b.Session.Query(stmt).Exec(); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
	client := b.broker(t)
	debezium := outbox.Mapping{Preset: outbox.PresetDebezium}
	loose := outbox.Mapping{Preset: outbox.PresetDebezium, Unordered: true}
	counted := outbox.Mapping{Columns: map[string]string{"aggregate_id": "customer", "seq": "n", "event_id": "id", "event_type": "what", "payload": "body"}, AggregateType: "customer"}
	b.reconfigure(t, func(c *Config) {
		c.Tables = []Table{
			{"outbox", "outbox_messages", outbox.Mapping{}},
			{"outbox", "carts", debezium},
			{"outbox", "loose", loose},
			{"outbox", "counted", counted},
			{"outbox", "daily", loose},
			{"outbox", "gone", debezium},
		}
	})
	for _, c := range []struct {
		path, table, aggregate, eventType string
		sequence                          int64
	}{
		{"c-1?aggregate_id=cart+7", "outbox.carts", "cart 7", "CartFilled", 0},
		{rows.IDOf("c-1").String() + "?aggregate_id=cart+7", "outbox.carts", "cart 7", "CartFilled", 0},
		{"l-1", "outbox.loose", "cart 8", "CartLost", 0}, // no aggregate is needed
		{"1042?aggregate_id=42", "outbox.counted", "42", "Counted", 3},
	} {
		var got BiographyBody
		b.ask(t, access.Viewer, "GET", "/v1/events/"+c.path, "").into(t, http.StatusOK, &got)
		if k := kinds(got.Steps); !slices.Equal(k, []string{"stored"}) || got.AggregateID != c.aggregate || got.EventType != c.eventType || got.Sequence != c.sequence ||
			!strings.Contains(got.Steps[0].Source, c.table) || got.Steps[0].At == nil || strings.Contains(got.Steps[0].Detail, "not an event") {
			t.Errorf("%s: %+v, want its row of %s", c.path, got, c.table)
		}
	}
	// The record contains the aggregate, which finds the row. The times of the record and
	// the row are close.
	e := outbox.Event{ID: outbox.IDFromText("c-1"), AggregateID: outbox.IDFromText("cart 7"), AggregateType: "cart", Type: "CartFilled", Payload: []byte("{}"), CreatedAt: time.Now()}
	publish(t, client, &e, header("outbox-captured", "tail"))
	var got BiographyBody
	b.ask(t, access.Viewer, "GET", "/v1/events/c-1?aggregate_id=cart+7", "").into(t, http.StatusOK, &got)
	if k := kinds(got.Steps); !slices.Equal(k, []string{"stored", "captured", "published"}) || got.Captured != "tail" || len(got.Gaps) != 0 {
		t.Errorf("published: %+v", got)
	}
	// Each table that cannot be read is listed.
	p := b.ask(t, access.Viewer, "GET", "/v1/events/nobody?aggregate_id=cart+9", "").problemIn(t, http.StatusNotFound)
	for _, want := range []string{"outbox.daily: a search needs column day", "outbox.gone was not read: there is no such table", "never stored"} {
		if !strings.Contains(p.Hint, want) {
			t.Errorf("of nothing: %q does not say %q", p.Hint, want)
		}
	}
}

func TestBiography_OfADeadEventAndItsEdit(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	l := b.writeDeadLetter(t, testDeadLetter(outbox.NewID().String(), 1), time.Time{})
	edited, err := b.store.Edit(t.Context(), l.EventID, dlq.Edit{Payload: []byte(`{"n":2}`), ContentType: "application/json"}, dlq.Actor{Name: "ann", Reason: "too large"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got BiographyBody
	b.ask(t, access.Viewer, "GET", "/v1/events/"+l.EventID.String(), "").into(t, http.StatusOK, &got)
	if k := kinds(got.Steps); !slices.Equal(k, []string{"dead_letter", "edited"}) || !got.DeadLetter || got.EditedTo != edited.String() || !strings.Contains(got.Steps[0].Detail, "breaker closed") || !strings.Contains(got.Steps[1].Detail, "by ann") {
		t.Errorf("the original: %+v", got)
	}
	if _, err := b.store.Claim(t.Context(), l.EventID, "relay-1", time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := b.store.Resolve(t.Context(), l.EventID, "relay-1", dlq.Outcome{Kind: dlq.OutcomeReplayed, Topic: "things", Partition: 2, Offset: 17}); err != nil {
		t.Fatal(err)
	}
	got = BiographyBody{}
	b.ask(t, access.Viewer, "GET", "/v1/events/"+edited.String(), "").into(t, http.StatusOK, &got)
	at := slices.IndexFunc(got.Steps, func(s BiographyStep) bool { return s.Kind == "published" })
	if got.EditOf != l.EventID.String() || got.DeadLetter || at < 0 || *got.Steps[at].Offset != 17 || *got.Steps[at].Partition != 2 {
		t.Errorf("the edit: %+v", got)
	}
}

// Sources that cannot be read become gaps, and the rest is returned.
func TestBiography_NamesUnknownParts(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	e := b.event(t)
	var got BiographyBody
	b.ask(t, access.Viewer, "GET", "/v1/events/"+e.ID.String()+"?aggregate_id="+e.AggregateID.String(), "").into(t, http.StatusOK, &got)
	if k := kinds(got.Steps); !slices.Equal(k, []string{"stored"}) || !slices.ContainsFunc(got.Gaps, func(g string) bool { return strings.Contains(g, "no broker is configured") }) {
		t.Errorf("without a broker: %+v", got)
	}
	b.broker(t)
	got = BiographyBody{}
	b.ask(t, access.Viewer, "GET", "/v1/events/"+e.ID.String()+"?aggregate_id="+e.AggregateID.String(), "").into(t, http.StatusOK, &got)
	if !slices.ContainsFunc(got.Gaps, func(g string) bool { return strings.Contains(g, "not in 1 topics") }) {
		t.Errorf("not published: %+v", got)
	}
	p := b.ask(t, access.Viewer, "GET", "/v1/events/"+gocql.MustRandomUUID().String(), "").problemIn(t, http.StatusNotFound)
	if !strings.Contains(p.Hint, "the time of the event is unknown") || !strings.Contains(p.Hint, "?aggregate_id=") {
		t.Errorf("of nothing: %+v", p)
	}
	b.reconfigure(t, func(c *Config) { c.Tables = append(c.Tables, c.Tables[0]) })
	p = b.ask(t, access.Viewer, "GET", "/v1/events/"+gocql.MustRandomUUID().String(), "").problemIn(t, http.StatusNotFound)
	if strings.Count(p.Hint, "?aggregate_id=") != 1 || !strings.Contains(p.Hint, testTable+", "+testTable) {
		t.Errorf("of nothing in two tables: %q, want both in one line", p.Hint)
	}
	b.reconfigure(t, func(c *Config) {
		c.Kafka = world.Kafka{kgo.SeedBrokers("127.0.0.1:1"), kgo.RetryTimeout(100 * time.Millisecond)}
	})
	b.ask(t, access.Viewer, "GET", "/v1/events/"+e.ID.String()+"?aggregate_id="+e.AggregateID.String(), "").into(t, http.StatusOK, &got)
	if len(got.Steps) != 1 || len(got.Gaps) == 0 {
		t.Errorf("with the broker away: %+v", got)
	}
}

func TestTimeOf(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Millisecond)
	if got := idTime(outbox.NewID().UUID()); got.Before(now) || got.After(time.Now()) {
		t.Errorf("of a UUIDv7 %s, want %s", got, now)
	}
	if got := idTime(gocql.UUIDFromTime(now)); !got.Equal(now) {
		t.Errorf("of a UUIDv1 %s, want %s", got, now)
	}
	if got := idTime(gocql.MustRandomUUID()); !got.IsZero() {
		t.Errorf("of a UUIDv4 %s", got)
	}
}
