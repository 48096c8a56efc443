package faults

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
)

// fixedSchema is a schema that does not change.
type fixedSchema catalog.Schema

func (s *fixedSchema) Schema() *catalog.Schema { return (*catalog.Schema)(s) }

// admin is an administration over HTTP of a node without a server.
type admin struct {
	*testing.T
	*Injector
	url string
}

func newAdmin(t *testing.T) *admin {
	t.Helper()
	st, err := store.Open(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	clock := NewClock(nil)
	top, err := topology.Open(st, topology.Options{Tokens: 2, Version: catalog.Version{Major: 2025, Minor: 4}, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	logged := &catalog.Table{Keyspace: "ks", Name: "ev", StoreID: 1001, CDC: &catalog.CDC{Enabled: true}}
	change, err := top.CreateStreams(logged, 2)
	if err != nil {
		t.Fatal(err)
	}
	change.Publish()
	schema := &catalog.Schema{Keyspaces: map[string]*catalog.Keyspace{"ks": {
		Name: "ks", Tablets: true, Tables: map[string]*catalog.Table{"ev": logged},
	}}}
	in := New(NewNode(top, (*fixedSchema)(schema), clock), clock, 1)
	srv := httptest.NewServer(in.Handler())
	t.Cleanup(srv.Close)
	return &admin{t, in, srv.URL}
}

// do sends a request and returns the answer's status and body.
func (a *admin) do(method, path, body string) (int, string) {
	a.Helper()
	req, err := http.NewRequestWithContext(a.Context(), method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		a.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		a.Fatal(err)
	}
	return res.StatusCode, strings.TrimSpace(string(b))
}

func (a *admin) must(status int, method, path, body string) string {
	a.Helper()
	got, answer := a.do(method, path, body)
	if got != status {
		a.Fatalf("%s %s %s = %d %s, want %d", method, path, body, got, answer, status)
	}
	return answer
}

func TestAdmin_Rules(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	const full = `{"name":"all of it","match":{"keyspace":"ks","table":"ev","kinds":["logged_batch","write"],"consistencies":["LOCAL_QUORUM"]},` +
		`"skip":1,"count":2,"probability":0.5,"effect":{"freeze":true,"generation":{"in":"1s","extra_tokens":3},` +
		`"split":{"keyspace":"ks","table":"ev","in":"2s"},"delay":"2s",` +
		`"error":{"code":"write_timeout","message":"m","write_type":"BATCH","consistency":"ONE","received":1,"block_for":2,"failures":1,"data_present":true},` +
		`"fate":"later","later":["4s","1m5s"]}}`
	if got := a.must(http.StatusCreated, "POST", "/rules", full); got != `{"id":1}` {
		t.Errorf("POST /rules = %s", got)
	}
	var listed []map[string]any
	if err := json.Unmarshal([]byte(a.must(http.StatusOK, "GET", "/rules", "")), &listed); err != nil || len(listed) != 1 {
		t.Fatalf("GET /rules = %v, %v", listed, err)
	}
	var want map[string]any
	if err := json.Unmarshal([]byte(full), &want); err != nil {
		t.Fatal(err)
	}
	want["id"], want["matched"], want["hits"], want["spent"] = 1.0, 0.0, 0.0, false
	if !reflect.DeepEqual(listed[0], want) {
		t.Errorf("a rule comes back as\n%v\nwant\n%v", listed[0], want)
	}
	a.must(http.StatusOK, "DELETE", "/rules/1", "")
	a.must(http.StatusNotFound, "DELETE", "/rules/1", "")
	a.must(http.StatusCreated, "POST", "/rules", `{"effect":{"disconnect":true,"merge":{"keyspace":"ks","table":"ev"}}}`)
	a.must(http.StatusCreated, "POST", "/rules", `{"effect":{"error":{"code":"0x1100","consistency":"all"}}}`)
	if n := len(a.Rules()); n != 2 {
		t.Errorf("%d rules, want 2", n)
	}
	a.must(http.StatusOK, "GET", "/rules", "")
	a.must(http.StatusOK, "DELETE", "/rules", "")
	if got := a.must(http.StatusOK, "GET", "/rules", ""); got != "[]" {
		t.Errorf("rules after DELETE: %s", got)
	}
}

func TestAdmin_BadRequestsReturnTheReason(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	for _, tt := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/rules", ``, 400, "no effect"},
		{"POST", "/rules", `{`, 400, "not understood"},
		{"POST", "/rules", `{"effect":{"delay":"1s"}} {}`, 400, "more than one"},
		{"POST", "/rules", `{"efect":{}}`, 400, "efect"},
		{"POST", "/rules", `{"effect":{"delay":"soon"}}`, 400, "not a duration"},
		{"POST", "/rules", `{"effect":{"delay":"-1s"}}`, 400, "negative"},
		{"POST", "/rules", `{"match":{"kinds":["batch"]},"effect":{"delay":"1s"}}`, 400, "logged_batch"},
		{"POST", "/rules", `{"effect":{"error":{"code":"busy"}}}`, 400, "overloaded"},
		{"POST", "/rules", `{"effect":{"error":{"code":"0x4242"}}}`, 400, "0x4242"},
		{"POST", "/rules", `{"effect":{"error":{"code":"write_timeout","write_type":"SLOW"}}}`, 400, "BATCH_LOG"},
		{"POST", "/rules", `{"effect":{"disconnect":true,"fate":"gone"}}`, 400, "decided"},
		{"POST", "/rules", `{"effect":{"computed":true}}`, 400, "scenarios"},
		{"POST", "/rules", `{"effect":{"split":{"keyspace":"a","table":"b"},"merge":{"keyspace":"a","table":"b"}}}`, 400, "not both"},
		{"POST", "/rules", `{"name":"` + strings.Repeat("x", maxBody) + `"}`, 400, "too large"},
		{"DELETE", "/rules/x", ``, 400, "not a number"},
		{"DELETE", "/rules/7", ``, 404, "no such rule"},
		{"POST", "/scenarios/nosuch", ``, 404, "batchlog-replay"},
		{"POST", "/scenarios/cas-across-generation", ``, 400, "set in: "},
		{"POST", "/scenarios/batchlog-replay-across-generation", `{"in":"2s","later":["1s"]}`, 400, "one longer delay in later"},
		{"POST", "/scenarios/frozen-replica", `{"later":["1s","2s"]}`, 400, "use one delay at most"},
		{"POST", "/scenarios/down-replica", `{"delay":"1s"}`, 400, "real node"},
		{"PUT", "/clock", `{}`, 400, "skew is missing"},
		{"POST", "/generations", `{"in":"-1s"}`, 400, "negative"},
		{"POST", "/generations", `{"extra_tokens":-1}`, 400, "extra tokens"},
		{"GET", "/tablets/ks/nosuch", ``, 404, "no table"},
		{"POST", "/tablets/ks/nosuch/split", ``, 400, "no table"},
		{"POST", "/tablets/ks/ev/merge", `{"in":"-1s"}`, 400, "negative"},
		{"GET", "/nosuch", ``, 404, "lists all paths"},
	} {
		status, answer := a.do(tt.method, tt.path, tt.body)
		var j map[string]string
		if err := json.Unmarshal([]byte(answer), &j); err != nil || status != tt.status || !strings.Contains(j["error"], tt.says) {
			t.Errorf("%s %s %.60s = %d %s, want %d and %q", tt.method, tt.path, tt.body, status, answer, tt.status, tt.says)
		}
	}
	if status, _ := a.do("PATCH", "/rules", ""); status != http.StatusNotFound {
		t.Errorf("PATCH /rules = %d", status)
	}
}

func TestAdmin_Scenarios(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	var about map[string]string
	if err := json.Unmarshal([]byte(a.must(200, "GET", "/scenarios", "")), &about); err != nil || len(about) != len(scenarios) {
		t.Fatalf("GET /scenarios = %v, %v", about, err)
	}
	for name := range scenarios {
		body := `{"in":"1s","table":"ev","skip":1,"count":3}`
		if name == "batchlog-replay-across-generation" {
			body = `{"in":"1s","later":["2s"],"delay":"0s"}`
		}
		a.must(201, "POST", "/scenarios/"+name, body)
	}
	rules := a.Rules()
	if len(rules) != len(scenarios) {
		t.Fatalf("%d rules, want %d", len(rules), len(scenarios))
	}
	a.must(200, "GET", "/rules", "")
	for _, r := range rules {
		if r.Name == "batchlog replay across a generation" {
			if r.Effect.Delay != 0 || len(r.Effect.Later) != 1 || r.Effect.Generation.In != time.Second || r.Count != 1 {
				t.Errorf("rule %+v", r)
			}
		} else if r.Match.Table != "ev" || r.Skip != 1 || r.Count != 3 {
			t.Errorf("rule %+v", r)
		}
	}
}

func TestAdmin_Node(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	a.must(200, "PUT", "/clock", `{"skew":"-1h"}`)
	if a.Clock().Skew() != -time.Hour || !strings.Contains(a.must(200, "GET", "/clock", ""), `"skew":"-1h0m0s"`) {
		t.Errorf("skew %v", a.Clock().Skew())
	}
	a.must(200, "PUT", "/clock", `{"skew":"0s"}`)

	var made startJSON
	if err := json.Unmarshal([]byte(a.must(201, "POST", "/generations", `{"in":"1h","extra_tokens":2}`)), &made); err != nil {
		t.Fatal(err)
	}
	if in := time.Until(made.Start); in < 59*time.Minute || in > time.Hour {
		t.Errorf("the generation starts in %v, want an hour", in)
	}
	if got := a.Node().Generations(); len(got) != 2 || !got[1].Equal(made.Start) {
		t.Errorf("generations %v", got)
	}
	a.must(200, "GET", "/generations", "")

	for _, step := range []struct {
		method, path, body string
		status, tablets    int
	}{
		{"POST", "/tablets/ks/ev/split", `{"in":"2s"}`, 201, 4},
		{"POST", "/tablets/ks/ev/merge", ``, 201, 2},
		{"POST", "/tablets/ks/ev/merge", ``, 201, 1},
		{"POST", "/tablets/ks/ev/merge", ``, 400, 1},
	} {
		a.must(step.status, step.method, step.path, step.body)
		var got map[string]int
		if err := json.Unmarshal([]byte(a.must(200, "GET", "/tablets/ks/ev", "")), &got); err != nil || got["tablets"] != step.tablets {
			t.Errorf("%s: %v tablets, want %d", step.path, got, step.tablets)
		}
	}

	a.must(201, "POST", "/freeze", "")
	if !a.Frozen() || a.must(200, "GET", "/freeze", "") != `{"frozen":true}` {
		t.Error("not frozen")
	}
	a.must(201, "POST", "/thaw", "")
	if a.Frozen() {
		t.Error("frozen after thaw")
	}
	if !strings.Contains(a.must(200, "GET", "/", ""), "/scenarios") {
		t.Error("GET / does not help")
	}
}

// A rule can begin a generation, or split tablets, when it is hit.
func TestInjector_ChangesTheNode(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	a.MustAdd(Rule{Count: 1, Effect: Effect{Generation: &Generation{In: time.Minute}, Resize: &Resize{Keyspace: "ks", Table: "ev"}}})
	a.MustAdd(Rule{Effect: Effect{Resize: &Resize{Keyspace: "ks", Table: "nosuch"}}})
	if v := a.Before(t.Context(), read(engine.OpRead, engine.One)); v.Err != nil {
		t.Fatal(v.Err)
	}
	if n, err := a.Node().Tablets("ks", "ev"); len(a.Node().Generations()) != 2 || n != 4 || err != nil {
		t.Errorf("%d generations, %d tablets, %v; want 2 and 4", len(a.Node().Generations()), n, err)
	}
	if v := a.Before(t.Context(), read(engine.OpRead, engine.One)); v.Err == nil {
		t.Error("a rule that cannot do its work passes in silence")
	}
}

func TestListen_OnlyOnLoopback(t *testing.T) {
	t.Parallel()
	for addr, ok := range map[string]bool{
		"127.0.0.1:0": true, "localhost:0": true, "[::1]:0": true,
		"0.0.0.0:0": false, ":0": false, "10.0.0.1:0": false, "127.0.0.1": false,
	} {
		l, err := Listen(addr)
		if err == nil {
			l.Close()
		} else if addr == "[::1]:0" {
			continue // a machine without IPv6
		}
		if (err == nil) != ok {
			t.Errorf("Listen(%s) error = %v", addr, err)
		}
	}
}
