package admin

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

const testTable = "outbox.outbox_messages"

// fixture is a server on a node in memory, over a real HTTP connection.
type fixture struct {
	*Server
	world.World
	store  *dlq.Store
	tokens map[access.Role]string
	http   *httptest.Server
	log    *logtest.Buffer
}

func setup(t testing.TB, change func(*Config)) *fixture {
	t.Helper()
	w := world.Start(t)
	store, err := dlq.Open(w.Session, schema.DefaultKeyspace, dlq.WithTimeouts(30*time.Second, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	b := &fixture{World: w, store: store, tokens: make(map[access.Role]string), log: new(logtest.Buffer)}
	var conf access.Config
	for _, r := range append(slices.Clone(access.Roles), consumerOfMail) {
		secret, hash := access.NewToken()
		b.tokens[r] = secret
		conf.Tokens = append(conf.Tokens, access.Token{Name: "a-" + strings.Split(string(r), "(")[0], Role: r, Hash: hash})
	}
	conf.RequestsPerSecond, conf.RequestsBurst = 1e6, 1e6
	gate, err := access.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		Session: b.Session, Keyspace: schema.DefaultKeyspace, DeadLetters: b.store, Gate: gate, LiveInterval: 20 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(b.log, nil)), Timeout: 30 * time.Second,
	}
	if change != nil {
		change(&c)
	}
	b.serve(t, c)
	return b
}

// consumerOfMail is a role of setup.
const consumerOfMail access.Role = "consumer(mail|sms-*)"

func (b *fixture) serve(t testing.TB, c Config) {
	t.Helper()
	var err error
	if b.Server, err = New(c); err != nil {
		t.Fatal(err)
	}
	b.http = httptest.NewServer(b.Handler())
	t.Cleanup(b.http.Close)
	t.Cleanup(b.live.close)
}

// reconfigure replaces the server by one with a changed configuration.
func (b *fixture) reconfigure(t testing.TB, change func(*Config)) {
	t.Helper()
	c := b.cfg
	c.Registerer = nil
	change(&c)
	b.serve(t, c)
}

// fault makes operations of a kind on a table time out, all after the first so many.
func (b *fixture) fault(table string, kind engine.OpKind, skip int) {
	b.Node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Table: table, Kinds: []engine.OpKind{kind}}, Skip: skip, Effect: faults.Effect{Failure: faults.WriteTimeout("", 0, 1)},
	})
}

// answer is the response to a request.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// ask sends a request with the token of a role and with a reason; an empty role sends no token,
// and an empty header is not sent.
func (b *fixture) ask(t testing.TB, role access.Role, method, path, body string, headers ...string) answer {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, b.http.URL+path, r)
	if err != nil {
		t.Fatal(err)
	}
	if role != "" {
		req.Header.Set("Authorization", "Bearer "+b.tokens[role])
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set(httpapi.ReasonHeader, "a%20test")
	for i := 0; i+1 < len(headers); i += 2 {
		if req.Header.Set(headers[i], headers[i+1]); headers[i+1] == "" {
			req.Header.Del(headers[i])
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	a := answer{code: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return a
}

// into decodes a JSON response with the expected status.
func (a answer) into(t testing.TB, code int, v any) answer {
	t.Helper()
	if a.code != code {
		t.Fatalf("answer %d, want %d: %s", a.code, code, a.body)
	}
	if v != nil {
		if err := json.Unmarshal(a.body, v); err != nil {
			t.Fatalf("%v: %s", err, a.body)
		}
	}
	return a
}

// problemIn decodes a problem document with the expected status and checks that it has a
// type.
func (a answer) problemIn(t testing.TB, code int) problem {
	t.Helper()
	var p problem
	a.into(t, code, &p)
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json" || p.Status != code || p.Detail == "" || !strings.HasPrefix(p.Type, "urn:scylla-outbox:problem:") {
		t.Fatalf("no problem document: %s %s", ct, a.body)
	}
	return p
}

// testDeadLetter returns a dead letter of aggregate a with sequence seq.
func testDeadLetter(a string, seq int64) *dlq.DeadLetter {
	return &dlq.DeadLetter{
		Table: testTable, EventID: gocql.MustRandomUUID(), AggregateID: a, AggregateType: "order", EventType: "OrderCreated", Sequence: seq,
		Payload: []byte(`{"n":1}`), ContentType: "application/json", Headers: map[string]string{"traceparent": "00-1"},
		CreatedAt: time.UnixMilli(1_700_000_000_123).UTC(), WrittenAt: 1_700_000_000_123_456, Topic: "OrderCreated", Status: dlq.Suspended,
		ErrorClass: "record_too_large", ErrorCode: "MESSAGE_TOO_LARGE", ErrorText: "record of 1234567 bytes is too large", ErrorChain: []string{"produce", "too large"},
		Attempts: 1, Strategy: dlq.StrategyManual, Metadata: map[string]string{"breaker": "closed", "host": "h1"},
	}
}

// writeDeadLetter writes a dead letter that failed first at that time; the zero time means now.
func (b *fixture) writeDeadLetter(t testing.TB, l *dlq.DeadLetter, at time.Time) *dlq.DeadLetter {
	t.Helper()
	s := b.store
	if !at.IsZero() {
		var err error
		if s, err = dlq.Open(b.Session, schema.DefaultKeyspace, dlq.WithClock(world.Clock(func() time.Time { return at }))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Write(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	return l
}

func (b *fixture) jobs() *jobs.Store { return jobs.New(b.store) }
