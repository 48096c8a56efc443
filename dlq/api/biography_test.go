package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// broker is a Kafka with the topic things, that the relay r has used.
func (b *bundle) broker(t *testing.T) *kgo.Client {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "things"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	b.cfg.Relay, b.cfg.Tables = "r", []string{testTable}
	b.cfg.Kafka = func(opts ...kgo.Opt) (*kgo.Client, error) {
		return kgo.NewClient(append(opts, kgo.SeedBrokers(cluster.ListenAddrs()...))...)
	}
	client, err := b.cfg.Kafka(kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if err := b.session.Query("INSERT INTO outbox.relay_topics (relay, table_name, topic) VALUES ('r', ?, 'things')", testTable).Exec(); err != nil {
		t.Fatal(err)
	}
	return client
}

// event stores an event.
func (b *bundle) event(t *testing.T) outbox.Event {
	t.Helper()
	e := outbox.Event{
		ID: outbox.NewID(), AggregateID: outbox.NewID(), Sequence: 1, AggregateType: "thing", Type: "ThingHappened", Payload: []byte("{}"), CreatedAt: time.Now(),
	}
	batch := b.session.Batch(gocql.LoggedBatch)
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

// kinds are the steps' kinds in order.
func kinds(steps []step) (out []string) {
	for _, s := range steps {
		out = append(out, s.Kind)
	}
	return out
}

func TestBiography_OfAPublishedEvent(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	client := b.broker(t)
	for range 50 {
		other := b.event(t)
		publish(t, client, &other)
	}
	e := b.event(t)
	r := publish(t, client, &e, kgo.RecordHeader{Key: outbox.HeaderBackfill, Value: []byte("1")})
	for _, query := range []string{"", "?aggregate=" + e.AggregateID.String()} {
		var got biographyBody
		b.ask(t, access.Viewer, "GET", "/v1/events/"+e.ID.String()+query, "").into(t, http.StatusOK, &got)
		if k := kinds(got.Steps); !slices.Equal(k, []string{"stored", "published", "captured"}) {
			t.Fatalf("%q: steps %v: %+v", query, k, got)
		}
		pub := got.Steps[1]
		if pub.Topic != "things" || *pub.Partition != r.Partition || *pub.Offset != r.Offset || pub.At == nil || !strings.Contains(pub.Source, "things") {
			t.Errorf("%q: published %+v, want %d@%d", query, pub, r.Partition, r.Offset)
		}
		if got.AggregateID != e.AggregateID.String() || got.Sequence != 1 || got.EventType != "ThingHappened" || got.Letter || len(got.Gaps) != 1 {
			t.Errorf("%q: %+v", query, got)
		}
	}
}

func TestBiography_OfADeadEventAndItsEdit(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	l := b.bury(t, testLetter(outbox.NewID().String(), 1), time.Time{})
	edited, err := b.store.Edit(t.Context(), l.EventID, dlq.Edit{Payload: []byte(`{"n":2}`), ContentType: "application/json"}, dlq.Actor{Name: "ann", Reason: "too large"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got biographyBody
	b.ask(t, access.Viewer, "GET", "/v1/events/"+l.EventID.String(), "").into(t, http.StatusOK, &got)
	if k := kinds(got.Steps); !slices.Equal(k, []string{"dead_letter", "edited"}) || !got.Letter || got.EditedTo != edited.String() || !strings.Contains(got.Steps[0].Detail, "breaker was closed") || !strings.Contains(got.Steps[1].Detail, "by ann") {
		t.Errorf("the original: %+v", got)
	}
	if _, err := b.store.Claim(t.Context(), l.EventID, "relay-1", time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := b.store.Resolve(t.Context(), l.EventID, "relay-1", dlq.Outcome{Kind: dlq.OutcomeReplayed, Topic: "things", Partition: 2, Offset: 17}); err != nil {
		t.Fatal(err)
	}
	got = biographyBody{}
	b.ask(t, access.Viewer, "GET", "/v1/events/"+edited.String(), "").into(t, http.StatusOK, &got)
	at := slices.IndexFunc(got.Steps, func(s step) bool { return s.Kind == "published" })
	if got.EditOf != l.EventID.String() || got.Letter || at < 0 || *got.Steps[at].Offset != 17 || *got.Steps[at].Partition != 2 {
		t.Errorf("the edit: %+v", got)
	}
}

// What cannot be looked at is a gap, and what is known is told nevertheless.
func TestBiography_SaysWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	e := b.event(t)
	var got biographyBody
	b.ask(t, access.Viewer, "GET", "/v1/events/"+e.ID.String()+"?aggregate="+e.AggregateID.String(), "").into(t, http.StatusOK, &got)
	if k := kinds(got.Steps); !slices.Equal(k, []string{"stored"}) || !slices.ContainsFunc(got.Gaps, func(g string) bool { return strings.Contains(g, "knows no broker") }) {
		t.Errorf("without a broker: %+v", got)
	}
	b.broker(t)
	got = biographyBody{}
	b.ask(t, access.Viewer, "GET", "/v1/events/"+e.ID.String()+"?aggregate="+e.AggregateID.String(), "").into(t, http.StatusOK, &got)
	if !slices.ContainsFunc(got.Gaps, func(g string) bool { return strings.Contains(g, "not in 1 topics") }) {
		t.Errorf("not published: %+v", got)
	}
	p := b.ask(t, access.Viewer, "GET", "/v1/events/"+gocql.MustRandomUUID().String(), "").problemIn(t, http.StatusNotFound)
	if !strings.Contains(p.Hint, "when it was stored") || !strings.Contains(p.Hint, "?aggregate=") {
		t.Errorf("of nothing: %+v", p)
	}
	b.cfg.Kafka = func(opts ...kgo.Opt) (*kgo.Client, error) {
		return kgo.NewClient(append(opts, kgo.SeedBrokers("127.0.0.1:1"), kgo.RetryTimeout(100*time.Millisecond))...)
	}
	b.ask(t, access.Viewer, "GET", "/v1/events/"+e.ID.String()+"?aggregate="+e.AggregateID.String(), "").into(t, http.StatusOK, &got)
	if len(got.Steps) != 1 || len(got.Gaps) == 0 {
		t.Errorf("with the broker away: %+v", got)
	}
}

func TestTimeOf(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Millisecond)
	if got := timeOf(outbox.NewID()); got.Sub(now).Abs() > time.Second {
		t.Errorf("of a UUIDv7 %s, want %s", got, now)
	}
	if got := timeOf(gocql.UUIDFromTime(now)); !got.Equal(now) {
		t.Errorf("of a UUIDv1 %s, want %s", got, now)
	}
	if got := timeOf(gocql.MustRandomUUID()); !got.IsZero() {
		t.Errorf("of a UUIDv4 %s", got)
	}
}
