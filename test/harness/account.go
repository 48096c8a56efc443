package harness

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// Account holds the topics against the database.
type Account struct {
	t       testing.TB
	session *gocql.Session
	client  *kgo.Client
	admin   *kadm.Client
	topics  []string

	next    map[string]map[int32]int64 // the next offset of each partition
	records []record                   // in the order of each partition
}

// record is an event as it stands in a topic.
type record struct {
	id        gocql.UUID
	aggregate gocql.UUID
	seq       int64
	topic     string
	partition int32
	at        time.Time
}

// Report is the result of Check. All but Events, Orders and Duplicates are to be 0.
type Report struct {
	Orders, Events int // in the database
	Duplicates     int // records of an event that a topic holds already
	Lost           int // events in no topic
	Unknown        int // events in a topic and not in the outbox
	OutOfOrder     int // events that first appear before one ahead of them in sequence
	Gaps           int // numbers that an aggregate has not
	Torn           int // orders whose version or status is not that of their last event, or without one
}

// OK says that nothing is lost, out of order, or half there.
func (r Report) OK() bool {
	return r.Lost == 0 && r.Unknown == 0 && r.OutOfOrder == 0 && r.Gaps == 0 && r.Torn == 0
}

// NewAccount connects to a database and a broker. Topics that do not exist are empty.
func NewAccount(t testing.TB, cqlAddr, kafkaAddr string, topics ...string) *Account {
	t.Helper()
	host, port, err := net.SplitHostPort(cqlAddr)
	if err != nil {
		t.Fatal(err)
	}
	cluster := gocql.NewCluster(host)
	cluster.Port, _ = strconv.Atoi(port)
	cluster.Keyspace = "outbox"
	cluster.Logger = log.New(io.Discard, "", 0)
	a := &Account{t: t, topics: topics, next: make(map[string]map[int32]int64)}
	if a.session, err = cluster.CreateSession(); err != nil {
		t.Fatalf("connect to the database: %v", err)
	}
	t.Cleanup(a.session.Close)
	if a.client, err = kgo.NewClient(kgo.SeedBrokers(kafkaAddr)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.client.Close)
	a.admin = kadm.NewClient(a.client)
	return a
}

// Wait checks until every event of the outbox is in a topic, or nothing has
// come in for patience, and returns the last report.
func (a *Account) Wait(patience time.Duration) Report {
	a.t.Helper()
	var last Report
	for seen, since := -1, time.Now(); ; time.Sleep(200 * time.Millisecond) {
		a.read()
		last = a.Check()
		if last.Lost == 0 || time.Since(since) > patience {
			return last
		}
		if len(a.records) > seen {
			seen, since = len(a.records), time.Now()
		}
	}
}

// read consumes the topics from where it left off to where they end now.
func (a *Account) read() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ends, err := a.admin.ListEndOffsets(ctx, a.topics...)
	if err != nil {
		a.t.Fatalf("list the ends of the topics: %v", err)
	}
	from := make(map[string]map[int32]kgo.Offset)
	left := 0
	ends.Each(func(o kadm.ListedOffset) {
		done := a.next[o.Topic][o.Partition]
		if o.Err != nil || o.Offset <= done {
			return
		}
		if from[o.Topic] == nil {
			from[o.Topic] = make(map[int32]kgo.Offset)
		}
		from[o.Topic][o.Partition] = kgo.NewOffset().At(done)
		left++
	})
	if left == 0 {
		return
	}
	a.client.AddConsumePartitions(from)
	for left > 0 {
		fetches := a.client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			a.t.Fatalf("consume: %v", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, _ := ends.Lookup(r.Topic, r.Partition)
			if r.Offset >= end.Offset {
				return
			}
			a.take(r)
			if r.Offset == end.Offset-1 {
				left--
			}
		})
	}
	partitions := make(map[string][]int32)
	for topic, ps := range from {
		for p := range ps {
			partitions[topic] = append(partitions[topic], p)
			end, _ := ends.Lookup(topic, p)
			if a.next[topic] == nil {
				a.next[topic] = make(map[int32]int64)
			}
			a.next[topic][p] = end.Offset
		}
	}
	a.client.RemoveConsumePartitions(partitions)
}

func (a *Account) take(r *kgo.Record) {
	e, _, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
	if err != nil {
		a.t.Errorf("%s[%d]@%d: %v", r.Topic, r.Partition, r.Offset, err)
		return
	}
	a.records = append(a.records, record{
		id: e.ID, aggregate: e.AggregateID, seq: e.Sequence, topic: r.Topic, partition: r.Partition, at: r.Timestamp,
	})
}

// Check holds what was consumed against the database as it is now.
func (a *Account) Check() Report {
	a.t.Helper()
	var r Report
	first := a.firstRecords(&r)
	events := make(map[gocql.UUID][]row)
	known := make(map[gocql.UUID]bool)
	for _, e := range a.outbox() {
		r.Events++
		events[e.aggregate] = append(events[e.aggregate], e)
		known[e.id] = true
		if _, ok := first[e.id]; !ok {
			r.Lost++
		}
	}
	for id := range first {
		if !known[id] {
			r.Unknown++
		}
	}
	for _, rows := range events {
		for i, e := range rows {
			if e.seq != int64(i+1) {
				r.Gaps++
			}
			if i == 0 {
				continue
			}
			before, ok1 := first[rows[i-1].id]
			after, ok2 := first[e.id]
			if ok1 && ok2 && !after.follows(before) {
				r.OutOfOrder++
			}
		}
	}
	a.checkOrders(&r, events)
	return r
}

// placed is the first record of an event, and its place among all of its partition.
type placed struct {
	record
	place int
}

// follows says whether p stands behind the record of the event before it: in
// one partition by place, in two by the time the records were made.
func (p placed) follows(q placed) bool {
	if p.topic == q.topic && p.partition == q.partition {
		return p.place > q.place
	}
	return !p.at.Before(q.at)
}

func (a *Account) firstRecords(r *Report) map[gocql.UUID]placed {
	first := make(map[gocql.UUID]placed, len(a.records))
	for i, rec := range a.records {
		if _, ok := first[rec.id]; ok {
			r.Duplicates++
			continue
		}
		first[rec.id] = placed{rec, i}
	}
	return first
}

// row is a row of the outbox.
type row struct {
	aggregate, id gocql.UUID
	seq           int64
	eventType     string
}

// outbox reads the outbox table, each aggregate's events in sequence.
func (a *Account) outbox() []row {
	a.t.Helper()
	var out []row
	var r row
	iter := a.session.Query("SELECT aggregate_id, seq, event_id, event_type FROM outbox_messages").Iter()
	for iter.Scan(&r.aggregate, &r.seq, &r.id, &r.eventType) {
		out = append(out, r)
	}
	if err := iter.Close(); err != nil {
		a.t.Fatalf("scan the outbox: %v", err)
	}
	slices.SortFunc(out, func(x, y row) int {
		return cmp.Or(slices.Compare(x.aggregate[:], y.aggregate[:]), cmp.Compare(x.seq, y.seq))
	})
	return out
}

// checkOrders holds the orders against their events: an order is there if and
// only if its event is, and as the last event left it. A cancellation that is
// in the outbox counts for a reader of the order even if the row is behind.
func (a *Account) checkOrders(r *Report, events map[gocql.UUID][]row) {
	a.t.Helper()
	var id, event gocql.UUID
	var version int64
	var status string
	stored := make(map[gocql.UUID]bool)
	iter := a.session.Query("SELECT id, version, status, event_id FROM orders").Iter()
	for iter.Scan(&id, &version, &status, &event) {
		r.Orders++
		stored[id] = true
		rows := events[id]
		if version < 1 || version > int64(len(rows)) || rows[version-1].id != event {
			r.Torn++
		}
	}
	if err := iter.Close(); err != nil {
		a.t.Fatalf("scan the orders: %v", err)
	}
	for id := range events {
		if !stored[id] {
			r.Torn++
		}
	}
}

// String is the report in one line.
func (r Report) String() string {
	return fmt.Sprintf("%d orders, %d events: %d lost, %d unknown, %d out of order, %d gaps, %d torn, %d duplicates",
		r.Orders, r.Events, r.Lost, r.Unknown, r.OutOfOrder, r.Gaps, r.Torn, r.Duplicates)
}
