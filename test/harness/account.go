package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Account holds the topics against the database.
type Account struct {
	t        testing.TB
	session  *gocql.Session
	ledger   *verify.Ledger
	consumer *verify.Consumer
}

// Report is the result of Check. All but Events, Orders and Duplicates are to be 0.
type Report struct {
	Orders, Events int // in the database
	Duplicates     int // records of an event that a topic holds already
	Lost           int // events in no topic
	Unknown        int // events in a topic and not in the outbox
	OutOfOrder     int // events that first appear before one ahead of them in sequence
	Gaps           int // numbers that an aggregate has not
	Torn           int // orders without an event, or whose version or status differs from their last event

	// Findings are the first problems of the events, one per line.
	Findings []string
}

// OK reports that no event is lost, out of order, or incomplete.
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
	cluster.Timeout, cluster.ConnectTimeout = Patience, Patience
	cluster.Logger = log.New(io.Discard, "", 0)
	a := &Account{t: t, ledger: verify.NewLedger()}
	if a.session, err = cluster.CreateSession(); err != nil {
		t.Fatalf("connect to the database: %v", err)
	}
	t.Cleanup(a.session.Close)
	client, err := kgo.NewClient(append(verify.FollowFromStart(topics...), kgo.SeedBrokers(kafkaAddr))...)
	if err != nil {
		t.Fatal(err)
	}
	a.consumer = verify.NewConsumer(client, a.ledger, topics...)
	done := make(chan struct{})
	go func() { a.consumer.Run(context.Background()); close(done) }()
	t.Cleanup(func() { client.Close(); <-done })
	return a
}

// Wait checks until every event of the outbox is in a topic, or there was no
// progress for Patience, and returns the last report.
func (a *Account) Wait() Report {
	a.t.Helper()
	var last Report
	for seen, since := int64(-1), time.Now(); ; time.Sleep(200 * time.Millisecond) {
		last = a.Check()
		if last.Lost == 0 || time.Since(since) > Patience {
			return last
		}
		if n := a.ledger.Totals().Records; n > seen {
			seen, since = n, time.Now()
		}
	}
}

// findingsShown bounds the findings of a report.
const findingsShown = 10

// Check reads the database and then the topics to their ends, and compares
// them.
func (a *Account) Check() Report {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	scan := verify.Scan{
		Session: a.session, Table: "outbox_messages", Ranges: 32,
		Topic: func(e *outbox.Event) (string, error) { return e.Type, nil },
	}
	if err := scan.Into(ctx, a.ledger); err != nil {
		a.t.Fatal(err)
	}
	if err := a.consumer.ToEnd(ctx); err != nil {
		a.t.Fatal(err)
	}
	c, findings := a.hold()
	if c.Unknown+c.Conflicts > 0 {
		// Written and published since the scan, perhaps.
		if err := scan.Into(ctx, a.ledger); err != nil {
			a.t.Fatal(err)
		}
		c, findings = a.hold()
	}
	if c.Foreign != 0 || c.Unreadable != 0 {
		a.t.Errorf("%d records and %d rows are no events", c.Foreign, c.Unreadable)
	}
	r := Report{
		Events: int(c.Rows), Duplicates: int(c.Doubles), Lost: int(c.Missing), Unknown: int(c.Unknown + c.Conflicts),
		OutOfOrder: int(c.Disorder), Gaps: int(c.Gaps), Findings: findings,
	}
	a.checkOrders(&r)
	return r
}

// hold holds the records against the rows, and names the first that do not agree.
func (a *Account) hold() (verify.Counts, []string) {
	var findings []string
	c := a.ledger.Check(verify.Window{FromFirst: true}, func(f verify.Finding) {
		if len(findings) == findingsShown {
			return
		}
		line, err := json.Marshal(f)
		if err != nil {
			a.t.Fatalf("describe a finding: %v", err)
		}
		findings = append(findings, string(line))
	})
	return c, findings
}

// checkOrders compares the orders with their events: an order exists if and
// only if its event does, and equals its last event. A cancellation in the
// outbox counts for a reader of the order even if the row is stale.
func (a *Account) checkOrders(r *Report) {
	a.t.Helper()
	events := make(map[outbox.ID][]verify.Row)
	for e := range a.ledger.Rows() {
		events[e.Aggregate] = append(events[e.Aggregate], e)
	}
	var id, event gocql.UUID
	var version int64
	var status string
	stored := make(map[gocql.UUID]bool)
	iter := a.session.Query("SELECT id, version, status, event_id FROM orders").Iter()
	for iter.Scan(&id, &version, &status, &event) {
		r.Orders++
		stored[id] = true
		rows := events[outbox.IDFromUUID(id)]
		if version < 1 || version > int64(len(rows)) || rows[version-1].Event.UUID() != event {
			r.Torn++
		}
	}
	if err := iter.Close(); err != nil {
		a.t.Fatalf("scan the orders: %v", err)
	}
	for id := range events {
		if !stored[id.UUID()] {
			r.Torn++
		}
	}
}

// String returns the report in one line, and a line for each finding.
func (r Report) String() string {
	line := fmt.Sprintf("%d orders, %d events: %d lost, %d unknown, %d out of order, %d gaps, %d torn, %d duplicates",
		r.Orders, r.Events, r.Lost, r.Unknown, r.OutOfOrder, r.Gaps, r.Torn, r.Duplicates)
	return strings.Join(append([]string{line}, r.Findings...), "\n")
}
