package adminclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/messages"
)

// clients returns a client of the handler over the network, and one in this process.
func clients(t *testing.T, token string, h http.HandlerFunc) map[string]*adminclient.Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL + "/behind/a/proxy")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*adminclient.Client{"network": adminclient.New(u, token, nil), "in process": adminclient.Local(h, nil)}
}

// A request has the path, query, headers and body of its arguments.
func TestClient_Requests(t *testing.T) {
	t.Parallel()
	var got string
	for name, c := range clients(t, "t-1", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		headers := r.Header.Get("If-Match")
		if reason := r.Header.Get(httpapi.ReasonHeader); reason != "" {
			headers += "reason=" + reason
		}
		got = strings.TrimSpace(strings.Join([]string{r.Method, strings.TrimPrefix(r.RequestURI, "/behind/a/proxy"), headers, string(body)}, " "))
		if token := r.Header.Get("Authorization"); token != "Bearer t-1" && strings.HasPrefix(r.RequestURI, "/behind") {
			t.Errorf("the token is %q", token)
		}
		_, _ = w.Write([]byte(`{"a_new_member":1}`))
	}) {
		low, at, ctx := -3, time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC), t.Context()
		for want, do := range map[string]func() error{
			"GET /v1/dead-letters?aggregate_id=a%26b&error_class=c&event_type=t&limit=7&min_priority=-3&since=2026-01-02T03%3A04%3A05.006Z&status=pending%2Csuspended&table=k.o&tag=x%2Cy&text=a+b&until=2026-01-02T04%3A04%3A05.006Z": func() error {
				_, _, err := c.DeadLetters(ctx, dlq.Filter{
					Status: []dlq.Status{dlq.Pending, dlq.Suspended}, ErrorClass: "c", EventType: "t", Aggregate: "a&b", Table: "k.o", Tags: []string{"x", "y"},
					MinPriority: &low, Text: "a b", Since: at, Until: at.Add(time.Hour),
				}, adminclient.Paging{Limit: 7})
				return err
			},
			"GET /v1/dead-letters?limit=3&table=k.o&with_payload=true": func() error {
				_, _, err := c.DeadLettersWithPayload(ctx, dlq.Filter{Table: "k.o"}, adminclient.Paging{Limit: 3})
				return err
			},
			"GET /v1/dead-letters?limit=500":          func() error { _, _, err := c.DeadLetters(ctx, dlq.Filter{}, adminclient.Paging{}); return err },
			"GET /v1/dead-letters/e%2F1":              func() error { _, err := c.DeadLetter(ctx, "e/1"); return err },
			"GET /v1/events/e%2F1?aggregate_id=a%26b": func() error { _, err := c.Event(ctx, "e/1", "a&b"); return err },
			"GET /v1/aggregates/a%2Fb?limit=9":        func() error { _, err := c.Aggregate(ctx, "a/b", 9); return err },
			"GET /v1/events?limit=9&since=2026-01-02T03%3A04%3A05.006Z&state=waiting": func() error {
				_, _, _, err := c.RecentEvents(ctx, "waiting", at, adminclient.Paging{Limit: 9})
				return err
			},
			"GET /v1/dead-letters/stats": func() error { _, err := c.Stats(ctx); return err },
			"GET /v1/jobs?limit=20": func() error {
				_, _, err := c.Jobs(ctx, time.Time{}, time.Time{}, adminclient.Paging{Limit: 20})
				return err
			},
			"GET /v1/jobs/j": func() error { _, err := c.Job(ctx, "j"); return err },
			"GET /v1/audit?action=a%2Cb&actor=ann&limit=5&since=2026-01-02T03%3A04%3A05.006Z": func() error {
				_, _, err := c.Audit(ctx, adminclient.AuditQuery{Since: at, Actor: "ann", Actions: []string{"a", "b"}}, adminclient.Paging{Limit: 5})
				return err
			},
			"GET /v1/archives?limit=500": func() error { _, _, err := c.Archives(ctx, time.Time{}); return err },
			`POST /v1/jobs/j/pause reason=why`: func() error {
				_, err := c.SteerJob(ctx, "j", adminclient.Pause, "why")
				return err
			},
			`POST /v1/dead-letters/preview  {"action":"replay","ids":["e"]}`: func() error {
				_, err := c.Preview(ctx, admin.JobTarget{Action: dlq.ActionReplay, IDs: []string{"e"}})
				return err
			},
			`POST /v1/jobs reason=why%20now {"action":"replay","ids":["e"],"follow":"30s"}`: func() error {
				_, err := c.CreateJob(ctx, admin.NewJobBody{JobTarget: admin.JobTarget{Action: dlq.ActionReplay, IDs: []string{"e"}}, Follow: "30s"}, "why now")
				return err
			},
			`POST /v1/subscriptions/mail/redeliver  {"key":"k","dry_run":true}`: func() error {
				_, err := c.PreviewRedelivery(ctx, "mail", admin.RedeliverBody{Slice: jobs.Slice{Key: "k"}})
				return err
			},
			`POST /v1/subscriptions/mail/redeliver reason=why {"since":"2026-01-02T03:04:05.006Z","rate":5}`: func() error {
				_, err := c.Redeliver(ctx, "mail", admin.RedeliverBody{Slice: jobs.Slice{Since: at}, Rate: 5}, "why")
				return err
			},
			"GET /v1/messages?client=c&created_since=2026-01-02T03%3A04%3A05.006Z&created_until=2026-01-02T04%3A04%3A05.006Z&key=k&limit=7&since=2026-01-02T03%3A04%3A05.006Z&state=scheduled&topic=t&until=2026-01-02T04%3A04%3A05.006Z": func() error {
				_, _, err := c.Scheduled(ctx, messages.ManyFilter{Topic: "t", Key: "k", Client: "c", Since: at, Until: at.Add(time.Hour), CreatedSince: at, CreatedUntil: at.Add(time.Hour)}, adminclient.Paging{Limit: 7})
				return err
			},
			`POST /v1/messages/cancel reason=caf%C3%A9%201 {"filter":{"topic":"t"},"cursor":"c"}`: func() error {
				_, err := c.ChangeScheduled(ctx, adminclient.CancelScheduled, messages.ManyBody{Filter: messages.ManyFilter{Topic: "t"}, Cursor: "c"}, "café 1")
				return err
			},
			`POST /v1/relays/a%2Fb/reshard reason=why {"to":3}`: func() error {
				_, err := c.Reshard(ctx, "a/b", admin.ReshardBody{To: 3}, "why")
				return err
			},
			`POST /v1/dead-letters/e/edit "4" {"dry_run":true}`: func() error {
				_, err := c.Edit(ctx, "e", 4, admin.EditBody{DryRun: true}, "")
				return err
			},
		} {
			if err := do(); err != nil || got != want {
				t.Errorf("%s: the request is %q, %v, want %q", name, got, err, want)
			}
		}
	}
}

// A list has all pages up to its limit, and the cursor of what follows.
func TestClient_Pages(t *testing.T) {
	t.Parallel()
	const total = 1203
	for name, c := range clients(t, "", func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		var rows []string
		for i := from; i < min(from+size, total); i++ {
			rows = append(rows, fmt.Sprintf(`{"event_id":"%d"}`, i))
		}
		next := ""
		if from+size < total {
			next = strconv.Itoa(from + size)
		}
		fmt.Fprintf(w, `{"dead_letters":[%s],"next":%q}`, strings.Join(rows, ","), next)
	}) {
		for limit, want := range map[int]struct {
			n    int
			next string
		}{0: {total, ""}, 1: {1, "1"}, 500: {500, "500"}, 501: {501, "501"}, total: {total, ""}, total + 1: {total, ""}} {
			found, next, err := c.DeadLetters(t.Context(), dlq.Filter{}, adminclient.Paging{Limit: limit})
			if err != nil || len(found) != want.n || next != want.next || found[len(found)-1].EventID != strconv.Itoa(want.n-1) {
				t.Errorf("%s: with the limit %d there are %d, next %q, %v; want %+v", name, limit, len(found), next, err, want)
			}
		}
		if found, next, err := c.DeadLetters(t.Context(), dlq.Filter{}, adminclient.Paging{Cursor: "1000", Limit: 2}); err != nil || len(found) != 2 || found[0].EventID != "1000" || next != "1002" {
			t.Errorf("%s: behind a cursor %+v, next %q, %v", name, found, next, err)
		}
	}
}

// A problem document becomes an error with its members; other responses contain the status.
func TestClient_Errors(t *testing.T) {
	t.Parallel()
	answers := map[string]struct {
		status    int
		body      string
		text      string
		temporary bool
	}{
		"problem":   {409, `{"status":409,"detail":"There is no archive.","hint":"set it","request_id":"r-1"}`, "there is no archive", false},
		"fields":    {422, `{"detail":"Invalid.","errors":[{"location":"body.a","message":"is wrong","value":1},{"location":"body.b","message":"too"}]}`, "invalid: body.a is wrong; body.b too", false},
		"acronym":   {400, `{"detail":"JSON is expected."}`, "JSON is expected", false},
		"server":    {503, `{"detail":"The database cannot be reached.","request_id":"r-1"}`, "the database cannot be reached (request id r-1)", true},
		"proxy":     {502, `<html>`, "response with status 502 Bad Gateway", true},
		"limit":     {429, `{}`, "response with status 429 Too Many Requests", true},
		"redirect":  {307, ``, "response with status 307 Temporary Redirect", false},
		"forbidden": {403, `{"detail":"x"}`, "x", false},
	}
	for name, c := range clients(t, "t-1", func(w http.ResponseWriter, r *http.Request) {
		a := answers[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
		w.Header().Set("Location", "/")
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte(a.body))
	}) {
		for kind, want := range answers {
			_, err := c.Job(t.Context(), kind)
			e, ok := errors.AsType[*adminclient.Error](err)
			if !ok || e.Error() != want.text || e.Status != want.status || e.Path != "/v1/jobs/"+kind || adminclient.Temporary(err) != want.temporary {
				t.Errorf("%s, %s: %v (%+v), want %+v", name, kind, err, e, want)
			}
		}
	}
}

// A request that the server's limit refuses is repeated; others are not.
func TestClient_WaitsForTheLimit(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int{http.StatusTooManyRequests: 3, http.StatusServiceUnavailable: 1} {
		sent, bodies := 0, make(map[string]bool)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			bodies[string(body)] = true
			if sent++; sent < 3 {
				w.WriteHeader(status)
				return
			}
			_, _ = w.Write([]byte("{}"))
		})
		_, err := adminclient.Local(h, nil).SteerJob(t.Context(), "j", adminclient.Pause, "why")
		if sent != want || len(bodies) != 1 || (err == nil) != (want == 3) {
			t.Errorf("with status %d: %d requests with %d bodies, %v; want %d", status, sent, len(bodies), err, want)
		}
	}
}

// A request that reads is sent during the check of the handler's requirements, and a change after it; both return
// the error of the check.
func TestLocal_ChecksWhileItReads(t *testing.T) {
	t.Parallel()
	for _, failed := range []error{nil, errors.New("keyspace k does not exist")} {
		var sent []string
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent = append(sent, r.Method)
			_, _ = w.Write([]byte("{}"))
		})
		c := adminclient.Local(h, func() error { sent = append(sent, "checked"); return failed })
		if _, err := c.Stats(t.Context()); !errors.Is(err, failed) || !slices.Equal(sent, []string{"GET", "checked"}) {
			t.Errorf("a read beside a check with %v: %v, %v", failed, sent, err)
		}
		sent = nil
		_, err := c.SteerJob(t.Context(), "j", adminclient.Pause, "why")
		if !errors.Is(err, failed) || sent[0] != "checked" || failed != nil && slices.Contains(sent, "POST") {
			t.Errorf("a change after a check with %v: %v, %v", failed, sent, err)
		}
	}
}

// A request without a response names the server, or is the end of its context.
func TestClient_NoResponse(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	for name, c := range clients(t, "t-1", func(w http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
		w.WriteHeader(499)
	}) {
		if _, err := c.Stats(ctx); !errors.Is(err, context.Canceled) || adminclient.Temporary(err) {
			t.Errorf("%s: a request whose context ends: %v", name, err)
		}
	}
	u := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	_, err := adminclient.New(u, "t-1", nil).Stats(t.Context())
	if e, ok := errors.AsType[*adminclient.UnreachableError](err); !ok || e.URL != u.String() || !adminclient.Temporary(err) || strings.Contains(err.Error(), "t-1") {
		t.Errorf("no server: %v", err)
	}
}
