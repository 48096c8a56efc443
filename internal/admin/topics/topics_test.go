package topics

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2/humatest"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/stream"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// start is the time of the first record of a test.
var start = time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)

// fixture is the operations on a broker in memory, with a producer.
type fixture struct {
	*Browser
	api      humatest.TestAPI
	broker   *kfake.Cluster
	producer *kgo.Client
}

func setup(t *testing.T, topics ...string) *fixture {
	t.Helper()
	broker := world.StartBroker(t, kfake.SeedTopics(3, "things", "secrets", "_internal", "orders.shards"), kfake.SeedTopics(1, "single"))
	seeds := kgo.SeedBrokers(broker.ListenAddrs()...)
	producer, err := kgo.NewClient(seeds, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(producer.Close)
	if len(topics) == 0 {
		topics = []string{"things", "single"}
	}
	b := &fixture{Browser: New(Config{Kafka: world.Kafka{seeds}, Topics: stream.Topics{Patterns: topics}}), broker: broker, producer: producer}
	b.serve(t)
	return b
}

func (b *fixture) serve(t *testing.T) {
	t.Helper()
	_, b.api = humatest.New(t)
	b.Register(b.api)
}

// put publishes a record of the n-th second.
func (b *fixture) put(t *testing.T, topic string, partition int32, n int, value []byte, headers ...kgo.RecordHeader) {
	t.Helper()
	r := &kgo.Record{Topic: topic, Partition: partition, Timestamp: start.Add(time.Duration(n) * time.Second), Key: fmt.Appendf(nil, "k%d", n), Value: value, Headers: headers}
	if err := b.producer.ProduceSync(t.Context(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// fill publishes n records to partitions in turn, numbered from first.
func (b *fixture) fill(t *testing.T, first, n int) {
	t.Helper()
	for i := first; i < first+n; i++ {
		b.put(t, "things", int32(i%3), i, fmt.Appendf(nil, `{"n":%d}`, i))
	}
}

// get sends a request and decodes its response.
func get[T any](t *testing.T, b *fixture, status int, path string) (out T) {
	t.Helper()
	a := b.api.Get(path)
	if a.Code != status {
		t.Fatalf("GET %s = %d %s, want %d", path, a.Code, a.Body, status)
	}
	if err := json.Unmarshal(a.Body.Bytes(), &out); err != nil {
		t.Fatalf("GET %s: %v: %s", path, err, a.Body)
	}
	return out
}

// numbers are the n of the records.
func numbers(t *testing.T, p *RecordsBody) (out []int) {
	t.Helper()
	for _, r := range p.Records {
		var v struct{ N int }
		if err := json.Unmarshal(r.Data, &v); err != nil {
			t.Fatalf("record %+v: %v", r, err)
		}
		out = append(out, v.N)
	}
	return out
}

// down are the numbers from a to b.
func down(a, b int) (out []int) {
	for i := a; i >= b; i-- {
		out = append(out, i)
	}
	return out
}

func TestList_AllowedTopicsWithOffsets(t *testing.T) {
	t.Parallel()
	b := setup(t, "things", "missing", "*.shards", "_*")
	b.fill(t, 0, 7)
	got := get[TopicsBody](t, b, 200, "/v1/topics")
	if len(got.Topics) != 1 || got.Topics[0].Name != "things" || got.Topics[0].Records != 7 || len(got.Topics[0].Partitions) != 3 {
		t.Fatalf("topics %+v, want things alone: neither others nor internal ones", got.Topics)
	}
	for i, end := range []int64{3, 2, 2} {
		if p := got.Topics[0].Partitions[i]; p.Partition != int32(i) || p.First != 0 || p.End != end || p.Error != "" {
			t.Errorf("partition %+v, want its end at %d", p, end)
		}
	}
}

// Pages continue one another, over all partitions, newest first; each record is in one.
func TestRecords_PagesNewestFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(t, 0, 120)
	for i := 120; i < 170; i++ { // one partition has most of the newest records
		b.put(t, "things", 1, i, fmt.Appendf(nil, `{"n":%d}`, i))
	}
	for _, limit := range []int{1, 7, 50, 200} {
		want, cursor := down(169, 0), ""
		if limit == 1 {
			want = down(169, 165)
		}
		var got []int
		for len(got) < len(want) {
			p := get[RecordsBody](t, b, 200, fmt.Sprintf("/v1/topics/things/records?limit=%d&cursor=%s", limit, cursor))
			if len(p.Records) > limit || len(p.Records) == 0 {
				t.Fatalf("limit %d: %d records after %d", limit, len(p.Records), len(got))
			}
			got, cursor = append(got, numbers(t, &p)...), p.Next
			if (cursor == "") != (len(got) == 170) {
				t.Fatalf("limit %d: next %q after %d records", limit, cursor, len(got))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
	}
	if p := get[RecordsBody](t, b, 200, "/v1/topics/things/records"); len(p.Records) != 50 {
		t.Errorf("%d records without a limit, want 50", len(p.Records))
	}
}

func TestRecords_ByPartitionAndTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(t, 0, 30)
	p := get[RecordsBody](t, b, 200, "/v1/topics/things/records?limit=3&partition=2")
	if got := numbers(t, &p); !slices.Equal(got, []int{29, 26, 23}) {
		t.Errorf("partition 2: %v", got)
	}
	at := url.QueryEscape(start.Add(10 * time.Second).Format(time.RFC3339))
	p = get[RecordsBody](t, b, 200, "/v1/topics/things/records?limit=4&at="+at)
	if got := numbers(t, &p); !slices.Equal(got, down(10, 7)) {
		t.Errorf("at 10 s: %v, want the records of that time and earlier ones", got)
	}
	p = get[RecordsBody](t, b, 200, "/v1/topics/things/records?limit=4&at="+at+"&cursor="+p.Next)
	if got := numbers(t, &p); !slices.Equal(got, down(6, 3)) {
		t.Errorf("at 10 s, page 2: %v", got)
	}
	if p = get[RecordsBody](t, b, 200, "/v1/topics/things/records?at=2020-01-01T00:00:00Z"); len(p.Records) != 0 || p.Next != "" {
		t.Errorf("before all records: %+v", p)
	}
	if p = get[RecordsBody](t, b, 200, "/v1/topics/things/records?at=0034-03-22T03:59:53Z"); len(p.Records) != 0 || p.Next != "" {
		t.Errorf("before all records: %+v", p)
	}
}

// A client that repeats after receives each record once, and of too many the newest.
func TestRecords_Follow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(t, 0, 9)
	p := get[RecordsBody](t, b, 200, "/v1/topics/things/records?limit=2")
	next := func(query string) RecordsBody {
		t.Helper()
		p = get[RecordsBody](t, b, 200, "/v1/topics/things/records?after="+p.After+query)
		return p
	}
	if next(""); len(p.Records) != 0 || p.Skipped != 0 || p.Next != "" {
		t.Errorf("without new records: %+v", p)
	}
	b.fill(t, 9, 5)
	if next(""); !slices.Equal(numbers(t, &p), down(13, 9)) || p.Skipped != 0 {
		t.Errorf("5 new records: %v, %d skipped", numbers(t, &p), p.Skipped)
	}
	b.fill(t, 14, 60)
	if next("&limit=10"); !slices.Equal(numbers(t, &p), down(73, 64)) || p.Skipped != 50 {
		t.Errorf("60 new records: %v, %d skipped, want the newest 10", numbers(t, &p), p.Skipped)
	}
	if next(""); len(p.Records) != 0 || p.Skipped != 0 {
		t.Errorf("skipped records came later: %+v", p)
	}
}

// A record has its place, its time, the members of its event, and its payload as the event
// encodes it. A large payload is cut between characters.
func TestRecords_Content(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := outbox.Event{
		ID: outbox.NewID(), AggregateID: outbox.IDFromText("thing-1"), Sequence: 7, AggregateType: "thing", Type: "ThingMade", CreatedAt: start, ContentType: "application/json",
		Headers: map[string]string{"traceparent": "00-1"},
	}
	headers := outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")
	large := `"` + strings.Repeat("a", maxPayload-2) + "ä" + `"`
	for i, value := range []string{`{"total":12345678901234567890.50}`, "plain", "\xff\xfe", large, strings.Repeat("1", maxPayload+1)} {
		b.put(t, "single", 0, i, []byte(value), headers...)
	}
	got := get[RecordsBody](t, b, 200, "/v1/topics/single/records").Records
	slices.Reverse(got)
	if len(got) != 5 {
		t.Fatalf("%d records", len(got))
	}
	r := got[0]
	if r.Topic != "single" || r.Partition != 0 || r.Offset != 0 || !r.At.Equal(start) || r.Key != "k0" || r.ID != e.ID.String() || r.Type != "ThingMade" ||
		r.AggregateID != "thing-1" || r.AggregateType != "thing" || r.Sequence != 7 || r.Headers["traceparent"] != "00-1" || r.Bytes != 33 || r.Truncated {
		t.Errorf("record %+v", r)
	}
	if string(r.Data) != `{"total":12345678901234567890.50}` {
		t.Errorf("data %s", r.Data)
	}
	if got[1].Text == nil || *got[1].Text != "plain" || string(got[2].Base64) != "\xff\xfe" {
		t.Errorf("text %+v, base64 %+v", got[1], got[2])
	}
	if r := got[3]; !r.Truncated || r.Bytes != len(large) || r.Text == nil || *r.Text != large[:maxPayload-1] {
		t.Errorf("a large text: truncated %t, %d bytes", r.Truncated, r.Bytes)
	}
	if r := got[4]; !r.Truncated || r.Data != nil || len(*r.Text) != maxPayload {
		t.Errorf("a number of %d digits is returned as another number", maxPayload+1)
	}
	if r := get[RecordsBody](t, b, 200, "/v1/topics/single/records?text=true").Records[4]; r.Data != nil || r.Text == nil || *r.Text != `{"total":12345678901234567890.50}` {
		t.Errorf("JSON as text: %+v", r)
	}
}

// A payload in the wire format of a schema registry is decoded, beside its bytes. One that
// cannot be, or whose JSON is too large for the page, stays as it is, and so does every payload
// while the registry is unreachable.
func TestRecords_DecodedBySchemas(t *testing.T) {
	t.Parallel()
	fake := srfake.New()
	t.Cleanup(fake.Close)
	fake.SeedSchema("single-value", 1, 1, sr.Schema{Type: sr.TypeAvro, Schema: `{"type":"record","name":"S","fields":[{"name":"v","type":"string"}]}`})
	fake.SeedSchema("nulls", 1, 2, sr.Schema{Type: sr.TypeAvro, Schema: `{"type":"array","items":"null"}`})
	b := setup(t)
	for i, value := range [][]byte{{0, 0, 0, 0, 1, 2, 'a'}, {0, 0, 0, 0, 1, 9, 0xff}, binary.AppendVarint([]byte{0, 0, 0, 0, 2}, 20_000), []byte("{}")} {
		if i == 2 {
			value = append(value, 0)
		}
		b.put(t, "single", 0, i, value)
	}
	schemas := func() *registry.Registry {
		r, err := registry.New(fake.URL(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	records := func(query string) []TopicRecord {
		b.cfg.Schemas = schemas() // with an empty cache
		got := get[RecordsBody](t, b, 200, "/v1/topics/single/records"+query).Records
		slices.Reverse(got)
		return got
	}
	got := records("")
	if r := got[0]; string(r.Data) != `{"v":"a"}` || string(r.Base64) != "\x00\x00\x00\x00\x01\x02a" || r.Text != nil || r.Bytes != 7 {
		t.Errorf("decoded: %+v", r)
	}
	if r := got[1]; r.Data != nil || len(r.Base64) != 7 {
		t.Errorf("not valid: %+v", r)
	}
	if r := got[2]; r.Data != nil || r.Text == nil && r.Base64 == nil {
		t.Errorf("%d bytes of JSON", len(r.Data))
	}
	if r := got[3]; string(r.Data) != "{}" || r.Base64 != nil {
		t.Errorf("JSON: %+v", r)
	}
	if r := records("?text=true")[0]; r.Data != nil || r.Text == nil || *r.Text != `{"v":"a"}` || len(r.Base64) != 7 {
		t.Errorf("as text: %+v", r)
	}
	fake.Close()
	if r := records("")[0]; r.Data != nil || r.Text == nil || len(*r.Text) != 7 {
		t.Errorf("without the registry: %+v", r)
	}
}

// The bytes of a page are bounded; pages of large records are shorter, and continue.
func TestRecords_LargeRecordsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 40 {
		b.put(t, "single", 0, i, fmt.Appendf(nil, `{"n":%d,"x":%q}`, i, strings.Repeat("x", 900_000)))
	}
	seen, cursor := 40, ""
	for page := 0; seen > 0; page++ {
		p := get[RecordsBody](t, b, 200, "/v1/topics/single/records?limit=200&cursor="+cursor)
		if len(p.Records) == 0 || page > 40 {
			t.Fatalf("page %d has no record, %d are left", page, seen)
		}
		if len(p.Records) == 40 {
			t.Fatal("36 MB were read for one page")
		}
		for _, r := range p.Records {
			if seen--; r.Offset != int64(seen) || !r.Truncated {
				t.Fatalf("offset %d, want %d, truncated", r.Offset, seen)
			}
		}
		cursor = p.Next
	}
}

// Aborted records are not returned, and neither are control records, which are the last of
// a transaction.
func TestRecords_CommittedOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	writer, err := kgo.NewClient(kgo.SeedBrokers(b.broker.ListenAddrs()...), kgo.TransactionalID("writer"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(writer.Close)
	n := 0
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
		if err := writer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			r := &kgo.Record{Topic: "single", Value: fmt.Appendf(nil, `{"n":%d}`, n), Timestamp: start.Add(time.Duration(n) * time.Second)}
			if n++; writer.ProduceSync(t.Context(), r).FirstErr() != nil {
				t.Fatal("produce")
			}
		}
		if err := writer.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	want, cursor := append(down(29, 20), down(9, 0)...), ""
	var got []int
	for range 20 {
		p := get[RecordsBody](t, b, 200, "/v1/topics/single/records?limit=3&cursor="+cursor)
		got = append(got, numbers(t, &p)...)
		if cursor = p.Next; cursor == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("records %v, want %v", got, want)
	}
}

func TestRecords_OtherTopicsAreNotFound(t *testing.T) {
	t.Parallel()
	b := setup(t, "things", "missing", "*.shards", "_*")
	for _, topic := range []string{"secrets", "_internal", "orders.shards", "missing"} {
		p := get[httpapi.Problem](t, b, http.StatusNotFound, "/v1/topics/"+topic+"/records")
		if p.Type != httpapi.TypeTopicNotFound || !strings.Contains(p.Detail, topic) {
			t.Errorf("%s: %+v, want a problem with its name", topic, p)
		}
	}
}

func TestRecords_InvalidRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(t, 0, 3)
	const records = "/v1/topics/things/records"
	after := get[RecordsBody](t, b, 200, records).After
	for _, query := range []string{
		"limit=0", "limit=201", "partition=3", "partition=-2", "cursor=%21", "cursor=" + httpapi.Cursor("gA", records), "partition=1&cursor=" + httpapi.Cursor("AAA", records), "after=AA", "after=" + after + "&cursor=" + after, "at=yesterday",
	} {
		get[httpapi.Problem](t, b, http.StatusUnprocessableEntity, "/v1/topics/things/records?"+query)
	}
	// A cursor of a topic that was created again is harmless: beyond the
	// end of a partition it means all records.
	far := position{0: 1 << 60, 7: 9}.String()
	for query, want := range map[string]int{"cursor=" + httpapi.Cursor(far, records): 1, "after=" + far: 3} {
		if p := get[RecordsBody](t, b, 200, "/v1/topics/things/records?"+query); len(p.Records) != want {
			t.Errorf("%s: %d records, want %d", query, len(p.Records), want)
		}
	}
}

// A topic with many partitions is read by partition: a cursor of all is too long for an
// address.
func TestRecords_ManyPartitions(t *testing.T) {
	t.Parallel()
	b := setup(t, "wide")
	if _, err := kadm.NewClient(b.producer).CreateTopic(t.Context(), maxPartitions+1, 1, nil, "wide"); err != nil {
		t.Fatal(err)
	}
	b.put(t, "wide", maxPartitions, 1, []byte(`{"n":1}`))
	if p := get[httpapi.Problem](t, b, http.StatusUnprocessableEntity, "/v1/topics/wide/records"); len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Message, "required: the topic has 65 partitions") {
		t.Errorf("without a partition: %+v", p.Errors)
	}
	if p := get[RecordsBody](t, b, 200, fmt.Sprintf("/v1/topics/wide/records?partition=%d", maxPartitions)); len(p.Records) != 1 {
		t.Errorf("by partition: %d records, want 1", len(p.Records))
	}
	longest := position{}
	for i := range int32(maxPartitions) {
		longest[i] = math.MaxInt64
	}
	if n := len(longest.String()); n > 1000 {
		t.Errorf("the longest cursor of %d partitions has %d characters, the limit is 1000", maxPartitions, n)
	}
}

// A broker that does not answer is a problem within a bounded time.
func TestRecords_BrokerAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.broker.Close()
	for _, path := range []string{"/v1/topics", "/v1/topics/things/records"} {
		begun := time.Now()
		a := b.api.Get(path)
		if a.Code != http.StatusServiceUnavailable || a.Header().Get("Retry-After") == "" || !strings.Contains(a.Body.String(), httpapi.TypeBroker) {
			t.Errorf("%s = %d %s", path, a.Code, a.Body)
		}
		if took := time.Since(begun); took > 3*readTime {
			t.Errorf("%s took %s", path, took)
		}
	}
	b.Browser = New(Config{})
	b.serve(t)
	get[httpapi.Problem](t, b, http.StatusServiceUnavailable, "/v1/topics")
}

// A broker that accepts connections and is silent is a problem within the same time.
func TestRecords_BrokerSilent(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	b := &fixture{Browser: New(Config{Kafka: world.Kafka{kgo.SeedBrokers(l.Addr().String())}, Topics: stream.Topics{Patterns: []string{"things"}}})}
	b.serve(t)
	begun := time.Now()
	get[httpapi.Problem](t, b, http.StatusServiceUnavailable, "/v1/topics/things/records")
	if took := time.Since(begun); took > readTime+3*time.Second {
		t.Errorf("it took %s", took)
	}
}

// Concurrent reads are bounded; a further one is refused with the time of a retry.
func TestRecords_ConcurrentReadsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range maxReads {
		give, err := b.places.Wait(context.Background(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer give()
	}
	for _, path := range []string{"/v1/topics", "/v1/topics/things/records"} {
		a := b.api.Get(path)
		if a.Code != http.StatusTooManyRequests || a.Header().Get("Retry-After") != "2" || !strings.Contains(a.Body.String(), httpapi.TypeTooManyReads) {
			t.Errorf("%s = %d %s", path, a.Code, a.Body)
		}
	}
}
