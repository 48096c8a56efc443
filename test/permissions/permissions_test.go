package permissions

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/scylla-outbox/scylla-outbox/devkit/processes/processtest"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/test/harness"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

var update = flag.Bool("update", false, "rewrite the generated part of docs/operators/permissions.md")

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const (
	page  = "../../docs/operators/permissions.md"
	begin = "<!-- BEGIN roles -->\n"
	end   = "<!-- END roles -->\n"
	root  = "root" // the user without limits
)

// The page has the permissions with which the commands are tested.
func TestPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), begin)
	_, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s has no marks of the generated part", page)
	}
	if want := before + begin + Page() + end + after; string(text) != want {
		if !*update {
			t.Fatalf("%s is not what the roles make; go test ./test/permissions -update writes it", page)
		}
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// system is a database and a broker in which each command has a user of its own, with the
// permissions of Roles and no other.
type system struct {
	t    *testing.T
	cql  string
	urls []string // variables with the addresses of APIs
	// kafka is the environment of a user that reaches the broker.
	kafka func(user string) []string

	mu      sync.Mutex
	refused map[string]bool
	used    map[*Grant]bool
}

// permit is the authorizer of the database.
func (s *system) permit(a scyllafake.Access) bool {
	if a.User == root {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range Roles {
		r := &Roles[i]
		for j := range r.Database {
			if g := &r.Database[j]; r.Name == a.User && g.covers(a.Permission, a.Keyspace, a.Table) {
				s.used[g] = true
				return true
			}
		}
	}
	s.refused[fmt.Sprintf("%s: %s on %s.%s", a.User, a.Permission, a.Keyspace, a.Table)] = true
	return false
}

// startDatabase starts the embedded database with the users.
func startDatabase(t *testing.T) *system {
	t.Helper()
	s := &system{t: t, refused: make(map[string]bool), used: make(map[*Grant]bool)}
	users := map[string]string{root: "secret"}
	for _, r := range Roles {
		users[r.Name] = "secret"
	}
	db, err := scyllafake.Start(scyllafake.Config{Addr: "127.0.0.1:0", Version: "2026.1", Users: users, Permit: s.permit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s.cql = db.Addr()
	return s
}

// env is the environment of a command of a user.
func (s *system) env(user string, more ...string) []string {
	return slices.Concat([]string{
		"OUTBOX_SCYLLA_HOSTS=" + s.cql, "OUTBOX_SCYLLA_USERNAME=" + user, "OUTBOX_SCYLLA_PASSWORD=secret", "OUTBOX_SCYLLA_TIMEOUT=" + harness.Patience.String(),
		"OUTBOX_OPS_ADDR=off", "OUTBOX_RELAY_TOPIC=" + events + "{event_type}", "OUTBOX_RELAY_SHARDS=2", "OUTBOX_RELAY_CONFIDENCE_WINDOW=3s",
		"OUTBOX_MESSAGES_TOPICS=notices", "OUTBOX_WATCH_TOPICS=" + events + "*,notices",
	}, s.kafka(user), more, s.urls)
}

// must runs a command of a user, which succeeds.
func (s *system) must(user string, args ...string) string {
	s.t.Helper()
	p := processtest.Start(s.t, user, harness.Binary(s.t, args[0]), s.env(user), args)
	if code := p.Wait(); code != 0 {
		s.t.Fatalf("%s: outbox %s: status %d\n%s%s", user, strings.Join(args, " "), code, p.Output(), p.Log())
	}
	return p.Output()
}

// serve runs a service of a user.
func (s *system) serve(user string, env []string, args ...string) {
	s.t.Helper()
	processtest.Start(s.t, user, harness.Binary(s.t, args[0]), s.env(user, env...), args)
}

// post sends JSON, and requires success.
func (s *system) post(url, body string) {
	s.t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body)) //nolint:noctx // the test ends with the process
	if err != nil {
		s.t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= 300 {
		s.t.Errorf("POST %s: %s", url, resp.Status)
	}
}

// grant creates the ACLs of all roles.
func grant(t *testing.T, admin *kadm.Client) {
	t.Helper()
	for i := range Roles {
		for _, b := range Roles[i].ACLs() {
			results, err := admin.CreateACLs(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				if r.Err != nil {
					t.Fatalf("%s: %v %s", r.Principal, r.Err, r.ErrMessage)
				}
			}
		}
	}
}

// story runs every command of Roles as its own user.
func (s *system) story() {
	t := s.t
	t.Helper()
	s.must("outbox_migrate", "schema", "migrate", "--components", "schedule,subscriptions,orders")
	setup := func(cql string) {
		session := connect(t, s.cql)
		defer session.Close()
		if err := session.Query(cql).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	setup("CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
	setup("CREATE TABLE shop.events (aggregateid text, id timeuuid, aggregatetype text, type text, payload text, PRIMARY KEY (aggregateid, id)) WITH cdc = {'enabled': true}")
	tables := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(tables, []byte("relay: {tables: [{keyspace: outbox, table: outbox_messages}, {keyspace: shop, table: events, preset: debezium, topic: shop.own}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addrs := harness.FreeAddrs(t, 6)
	orders, messages, subscriptions, admin, ops, notifier := addrs[0], addrs[1], addrs[2], addrs[3], addrs[4], addrs[5]
	s.urls = []string{"OUTBOX_API_SUBSCRIPTIONS_URL=http://" + subscriptions}
	const adminToken = "permissions:viewer:sha256:4f01f03b0e5cbd6d1e3ed0b5b3a7a4e1b6a5c7a1b39b0f3a5d0c1a2f3e4d5c6b"
	s.serve("outbox_relay", []string{"OUTBOX_OPS_ADDR=" + ops}, "relay", "--config", tables)
	s.serve("outbox_orders", nil, "orders", "--orders-addr", orders)
	s.serve("outbox_messages", []string{"OUTBOX_MESSAGES_ADDR=" + messages}, "messages")
	s.serve("outbox_subscriptions", []string{"OUTBOX_SUBSCRIPTIONS_ADDR=" + subscriptions}, "subscriptions")
	s.serve("outbox_admin", []string{"OUTBOX_ADMIN_ADDR=" + admin, "OUTBOX_ADMIN_TOKENS=" + adminToken}, "admin")
	s.serve("outbox_admin", []string{"OUTBOX_OPS_ADDR=" + notifier, "OUTBOX_NOTIFICATIONS_TARGETS=hook=generic://127.0.0.1:1?disabletls=yes"}, "notifier")
	for _, addr := range []string{ops, orders, messages, subscriptions, admin, notifier} {
		harness.Ready(t, addr)
	}
	s.post("http://"+orders+"/v1/orders", `{"country":"Finland","currency":"EUR","lines":[{"sku":"71053","quantity":2,"unit_price":"3.39"}]}`)
	s.post("http://"+messages+"/v1/messages", `{"topic":"notices","key":"a","payload":{}}`)
	setup("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES ('a', now(), 'thing', 'Happened', '{}')")
	s.must("outbox_tail", "tail", "shop.OrderCreated", "shop.own", "--from-start", "--limit", "2")

	file := filepath.Join(t.TempDir(), "mail.yaml")
	if err := os.WriteFile(file, []byte("name: mail\ntopics: [shop.OrderCreated]\nstart: earliest\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must("outbox_admin", "subscriptions", "apply", "-f", file)
	api := "http://" + subscriptions + "/v1/subscriptions/mail/receive"
	harness.Until(t, "a message of the subscription", func() bool {
		resp, err := http.Post(api, "application/json", strings.NewReader(`{"max":1,"wait":"5s"}`)) //nolint:noctx // the same
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		text := make([]byte, 1<<16)
		n, _ := resp.Body.Read(text)
		return resp.StatusCode == http.StatusOK && strings.Contains(string(text[:n]), "receipt")
	})
	s.must("outbox_relay", "doctor", "--config", tables)
	s.must("outbox_verify", "verify", "--until", "0s")
	s.must("outbox_admin", "dlq", "list")
	s.must("outbox_admin", "status")
	s.must("outbox_admin", "audit", "list")
	s.must("outbox_admin", "events", "list", "--config", tables)
	s.must("outbox_admin", "events", "a", "--config", tables)
	s.must("outbox_admin", "messages", "list")
	s.must("outbox_admin", "subscriptions", "redeliver", "mail", "--since", "1h", "--dry-run")
	s.must("outbox_admin", "verify", "--until", "0s", "--repair", "--reason", "a test")
}

// check reports refused operations, and grants that no command of the story has used.
func (s *system) check() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for what := range s.refused {
		s.t.Errorf("the database refused %s", what)
	}
	for i := range Roles {
		for j := range Roles[i].Database {
			if g := &Roles[i].Database[j]; !s.used[g] && !g.Rare {
				s.t.Errorf("%s never used %s on %s", Roles[i].Name, g.Permission, g.Resource)
			}
		}
	}
}

// Every command works with the permissions of the page, and the database needs each of them.
func TestRoles(t *testing.T) {
	t.Parallel()
	s := startDatabase(t)
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", root, "secret"), kfake.SeedTopics(1, "notices")}
	for _, r := range Roles {
		opts = append(opts, kfake.User("PLAIN", r.Name, "secret"))
	}
	addr := world.StartBroker(t, opts...).ListenAddrs()[0]
	s.kafka = func(user string) []string {
		return []string{"OUTBOX_KAFKA_SEEDS=" + addr, "OUTBOX_KAFKA_SASL=plain", "OUTBOX_KAFKA_USERNAME=" + user, "OUTBOX_KAFKA_PASSWORD=secret"}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.SASL(plain.Auth{User: root, Pass: "secret"}.AsMechanism()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	grant(t, kadm.NewClient(client))
	s.story()
	s.check()
}
