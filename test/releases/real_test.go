package releases

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/doctor"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schema"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// hostsVar names the nodes of a given cluster, userVar and passwordVar an account there.
const hostsVar, userVar, passwordVar = "OUTBOX_SCYLLA_HOSTS", "OUTBOX_SCYLLA_USERNAME", "OUTBOX_SCYLLA_PASSWORD"

// given returns the configuration of sessions to the given cluster.
func given(keyspace string) *gocql.ClusterConfig {
	c := gocql.NewCluster(strings.Split(os.Getenv(hostsVar), ",")...)
	c.Keyspace, c.ProtoVersion, c.Timeout, c.ConnectTimeout = keyspace, 4, 10*time.Second, 10*time.Second
	if user := os.Getenv(userVar); user != "" {
		c.Authenticator = gocql.PasswordAuthenticator{Username: user, Password: os.Getenv(passwordVar)}
	}
	return c
}

// TestReal is what make test-real runs on the cluster in OUTBOX_SCYLLA_HOSTS, in fresh keyspaces
// and in real time: migrations, and all services through the story of this package and through the
// requests, failures and delays of rest; then the relay publishes the remaining events, the
// verification finds them, and each response of the admin API is read. Without a cluster it runs on
// the embedded database, in virtual time, and executes each statement of the source. No statement
// may be refused.
func TestReal(t *testing.T) {
	all := newStatements()
	t.Run("Tablets", func(t *testing.T) {
		// The guard of the ring waits as long as a real node's.
		onDatabase(t, all, scyllafake.Config{Tokens: 4, RingDelay: 30 * time.Second}, func(w *world) {
			w.real()
			if w.node != nil {
				w.conditional()
			}
		})
	})
	t.Run("Vnodes", func(t *testing.T) { onDatabase(t, all, scyllafake.Config{Tokens: 4, Shards: 2}, (*world).vnodes) })
	if os.Getenv(hostsVar) == "" {
		all.checkCovered(t)
	}
}

// onDatabase runs f on the given cluster, in a fresh keyspace, or on an embedded one in a bubble.
// It records the statements in all.
func onDatabase(t *testing.T, all *statements, conf scyllafake.Config, f func(*world)) {
	t.Helper()
	if os.Getenv(hostsVar) == "" {
		bubbleOn(t, time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC), conf, func(w *world) {
			w.statements = all
			f(w)
		})
		return
	}
	defer func(was string) { keyspace = was }(keyspace)
	keyspace = "outbox_" + strconv.FormatInt(time.Now().UnixMilli(), 36)
	w := &world{t: t, archiveDir: t.TempDir(), statements: all}
	w.startBroker()
	defer w.close()
	defer func() {
		s := w.connect("")
		defer sessions.Close(s)
		if err := s.Query("DROP KEYSPACE IF EXISTS " + keyspace).Exec(); err != nil {
			t.Error(err)
		}
	}()
	f(w)
}

// With each version of the broker that gives topics ids, which subscriptions need, all services
// run the story: orders, messages, schedule, relay, dead letters, subscriptions and the inbox.
func TestStory_EachVersionOfTheBroker(t *testing.T) {
	for _, v := range testworld.BrokerVersions {
		if !v.TopicIDs || len(v.Options()) == 0 { // TestReal has the newest
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			bubbleOn(t, time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC), scyllafake.Config{Tokens: 4}, func(w *world) {
				w.statements = newStatements()
				w.setUp()
				story(w)
				w.accept()
				_, stop := w.relays()
				defer stop()
				w.publishesAll()
				w.accepts()
			}, v.Options()...)
		})
	}
}

// conditional compares the tables NAME$paxos that the story made with the tables that have
// conditional statements according to docs/operators/tablets.md.
func (w *world) conditional() {
	page, err := os.ReadFile("../../docs/operators/tablets.md")
	w.must(err)
	var documented, all, made []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*`) \\|").FindAllStringSubmatch(string(page), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			documented = append(documented, strings.Trim(name, "`"))
		}
	}
	iter := w.session.Query("SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", keyspace).Iter()
	for name := ""; iter.Scan(&name); {
		if of, is := strings.CutSuffix(name, "$paxos"); is {
			made = append(made, of)
		} else {
			all = append(all, name)
		}
	}
	w.must(iter.Close())
	for _, name := range made {
		if !slices.Contains(documented, name) && !slices.ContainsFunc(own(), func(stmt string) bool { return strings.Contains(stmt, "."+name+" ") }) {
			w.t.Errorf("%s has conditional statements, and docs/operators/tablets.md does not name it", name)
		}
	}
	for _, name := range documented {
		if !slices.Contains(all, name) {
			w.t.Errorf("docs/operators/tablets.md names %s, and there is no such table", name)
		}
	}
	if len(made) < 10 {
		w.t.Errorf("only %q have conditional statements", made)
	}
	w.t.Logf("documented and without a conditional statement in the story: %q", slices.DeleteFunc(documented, func(name string) bool { return slices.Contains(made, name) }))
}

// setUp migrates an empty keyspace, and opens the stores.
func (w *world) setUp() {
	w.migrate()
	w.migrate() // it changes nothing
	w.open()
	for _, stmt := range own() {
		w.must(w.session.Query(stmt).Exec())
	}
	status := must1[schema.Report](w)(schema.Status(w.t.Context(), w.session, schema.Options{Keyspace: keyspace}))
	if !status.UpToDate() {
		w.t.Errorf("the keyspace is not up to date: %+v", status.Migrations)
	}
	w.t.Logf("keyspace %s of ScyllaDB %s", keyspace, status.Server.Version)
}

// real runs the scenarios in an empty keyspace.
func (w *world) real() {
	ctx := w.t.Context()
	w.setUp()
	facts, paths := story(w)
	order, err := gocql.ParseUUID(facts["order"][0])
	w.must(err)
	again := must1[orders.Result](w)(w.orders.Confirm(ctx, order, orders.Confirmation{}, orders.WriteOptions{IdempotencyKey: "confirm-1"}))
	if !again.Replayed || again.Order.Version != 2 {
		w.t.Errorf("a repeated change of an earlier version = %+v, want version 2", again)
	}
	get := w.api()
	for _, path := range paths {
		if code, body := get(path); code != http.StatusOK {
			w.t.Errorf("GET %s: %d %s", path, code, body)
		}
	}
	w.rest()
	w.accept()
	_, stop := w.relays()
	defer stop()
	w.publishesAll()
	w.tablets()
	w.publishesAll()
	w.accepts()
}

// accepts fails for each statement that the database refused.
func (w *world) accepts() {
	for stmt := range w.statements.refused {
		w.t.Error("refused: ", stmt)
	}
}

// publishesAll waits until the relay has published every event, once and in order.
func (w *world) publishesAll() {
	var counts verify.Counts
	for range 60 {
		if counts = w.verifyTopics(); counts.Missing == 0 {
			break
		}
		time.Sleep(10 * time.Second)
	}
	if counts.Missing+counts.Unknown+counts.Conflicts+counts.Disorder+counts.Doubles > 0 || counts.Published == 0 {
		w.t.Errorf("the relay has published %+v, want every event once and in order", counts)
	}
	w.t.Logf("%+v", counts)
}

// tabletStatement is a statement of docs/operators/tablets.md, and its effect according to the
// page.
var tabletStatement = regexp.MustCompile(`(?m)^    ALTER TABLE outbox\.(.*'min_tablet_count': (\d+)\});\n\n.* has (\d+) streams before it and (\d+) after it`)

// tablets executes the statement of docs/operators/tablets.md while the relay runs and events are
// written, and waits for the streams that the page promises.
func (w *world) tablets() {
	page, err := os.ReadFile("../../docs/operators/tablets.md")
	w.must(err)
	stmt := tabletStatement.FindStringSubmatch(string(page))
	if stmt == nil {
		w.t.Fatal("docs/operators/tablets.md has no statement that sets the number of tablets, with its effect")
	}
	c := w.config()
	conf := must1[[]relay.Config](w)(c.RelayConfigs())[0]
	conf.Session = w.session
	streams := func() int { return len(must1[[][]byte](w)(relay.Streams(w.t.Context(), conf))) }
	number := func(text string) int { return must1[int](w)(strconv.Atoi(text)) }
	before, want := streams(), number(stmt[4])
	if w.node != nil && before != number(stmt[3]) {
		w.t.Errorf("%d streams, and the page says %s", before, stmt[3])
	}
	w.must(w.session.Query("ALTER TABLE " + keyspace + "." + stmt[1]).Exec())
	began := time.Now()
	for n := int64(1); streams() < want; n++ { // a cluster with more shards has more at once
		if time.Since(began) > 10*time.Minute {
			w.t.Fatalf("%d streams after %s, want %d", streams(), time.Since(began), want)
		}
		w.append(event("split", n, "Moved"))
		time.Sleep(5 * time.Second)
	}
	took := time.Since(began)
	time.Sleep(2 * time.Minute) // where there were as many before, too, the change is made
	w.append(event("after the split", 1, "Moved"))
	found := doctor.CheckScylla(w.t.Context(), c)
	after := streams()
	w.t.Logf("%d streams before, %d after %s, and then %d", before, want, took, after)
	if w.node != nil && after != want {
		w.t.Errorf("%d streams, and the page says %d", after, want)
	}
	if !slices.ContainsFunc(found, func(f doctor.Finding) bool { return strings.Contains(f.Detail, fmt.Sprintf(": %d streams", after)) }) {
		w.t.Errorf("the doctor does not report %d streams: %+v", after, found)
	}
}

// verifyTopics compares the outbox with its topics.
func (w *world) verifyTopics() verify.Counts {
	v := verify.Verification{
		Scan: &verify.Scan{
			Session: w.session, Table: keyspace + "." + outbox.DefaultTableName, Ranges: 16,
			Topic: func(e *outbox.Event) (string, error) {
				return relay.ExpandTopic(relay.Defaults().TopicTemplate, e.Type, e.AggregateType), nil
			},
		},
		Keyspace: keyspace, Table: outbox.DefaultTableName, Kafka: testworld.Kafka(w.brokers()), Source: relay.Defaults().Source,
		Window:      verify.Window{Until: time.Now()},
		DeadLetters: app.DeadLettersOf{Store: w.deadLetters, Table: keyspace + "." + outbox.DefaultTableName},
	}
	w.must(v.Run(w.t.Context()))
	return v.Ledger().Check(v.Window, nil)
}
