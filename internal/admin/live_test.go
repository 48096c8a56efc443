package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// patience bounds the waits of a test.
const patience = time.Minute

// sse is an open stream.
type sse struct {
	t      *testing.T
	resp   *http.Response
	r      *bufio.Reader
	cancel context.CancelFunc
}

func (b *fixture) listen(t *testing.T) *sse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.http.URL+"/v1/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.tokens[access.Viewer])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); resp.Body.Close() })
	return &sse{t, resp, bufio.NewReader(resp.Body), cancel}
}

// next returns the next event of the name for which ok is true.
func (s *sse) next(name string, ok func(data []byte) bool) {
	s.t.Helper()
	var event string
	for {
		line, err := s.r.ReadString('\n')
		if err != nil {
			s.t.Fatalf("no event %s came: %v", name, err)
		}
		line = strings.TrimSuffix(line, "\n")
		if after, is := strings.CutPrefix(line, "event: "); is {
			event = after
		}
		if data, is := strings.CutPrefix(line, "data: "); is && event == name && ok([]byte(data)) {
			return
		}
	}
}

func TestLive_SendsChanges(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	s := b.listen(t)
	if s.resp.StatusCode != 200 || s.resp.Header.Get("Content-Type") != "text/event-stream" || s.resp.Header.Get("Content-Security-Policy") == "" {
		t.Fatalf("stream: %d %v", s.resp.StatusCode, s.resp.Header)
	}
	open := func(n int64) func([]byte) bool {
		return func(data []byte) bool {
			var st StatusBody
			return json.Unmarshal(data, &st) == nil && st.DeadLetters.Open == n
		}
	}
	s.next("status", open(0))
	l := b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
	has := func(id string) func([]byte) bool {
		return func(data []byte) bool { return strings.Contains(string(data), id) }
	}
	s.next("dead_letters", has(l.EventID.String()))
	b.ask(t, access.Admin, "POST", "/v1/dead-letters/"+l.EventID.String()+"/discard", `{}`).into(t, 200, nil)
	s.next("dead_letters", has(l.EventID.String()))
	late := b.listen(t) // it receives the current state immediately
	late.next("status", open(0))

	j, err := b.jobs().Create(t.Context(), jobs.Spec{Action: dlq.ActionReplay}, dlq.Actor{Name: "t"})
	if err != nil {
		t.Fatal(err)
	}
	state := func(want jobs.State) func([]byte) bool {
		return func(data []byte) bool {
			var got JobBody
			return json.Unmarshal(data, &got) == nil && got.ID == j.ID.String() && got.State == want
		}
	}
	s.next("job", state(jobs.Queued))
	if err := b.jobs().Cancel(t.Context(), j.ID, dlq.Actor{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	s.next("job", state(jobs.Cancelled))
	err = b.Session.Query("INSERT INTO outbox.relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', 'r', 't', 'i', ?, ?)",
		time.Now(), `{"state":"running","breaker":{"state":"open"}}`).Exec()
	if err != nil {
		t.Fatal(err)
	}
	s.next("status", has(`"breaker":{"state":"open"}`))
}

// A client that does not read is disconnected, and does not delay the others.
func TestLive_SlowReadersAreDropped(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.MaxListeners = 2 })
	slow, err := b.live.join("")
	if err != nil {
		t.Fatal(err)
	}
	quick := b.listen(t)
	a := b.ask(t, access.Viewer, "GET", "/v1/live", "")
	if a.problemIn(t, http.StatusTooManyRequests); a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After for one listener too many")
	}
	for i := range 3 * liveQueue {
		b.live.notify(t.Context(), "test", false, i)
	}
	end := time.After(patience)
	for open := true; open; {
		select {
		case _, open = <-slow.events:
		case <-end:
			t.Fatal("the slow reader was not dropped")
		}
	}
	if slow.why != "too slow" || testutil.ToFloat64(b.metrics.dropped) < 1 {
		t.Errorf("it ended because %q, %v dropped", slow.why, testutil.ToFloat64(b.metrics.dropped))
	}
	b.live.leave(slow, "again")
	_ = quick
}

// Polling stops with the last listener and starts with the next.
func TestLive_PollsWhileAClientListens(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for range 3 {
		s := b.listen(t)
		s.next("status", func([]byte) bool { return true })
		s.cancel()
		for end := time.Now().Add(patience); ; {
			b.live.mu.Lock()
			n, looking := len(b.live.listeners), b.live.stop != nil
			b.live.mu.Unlock()
			if n == 0 && !looking {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d listeners, looking %v, after the only one left", n, looking)
			}
			time.Sleep(time.Millisecond)
		}
	}
	s := b.listen(t)
	s.next("status", func([]byte) bool { return true })
	b.live.close()
	if _, err := io.ReadAll(s.r); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the stream of a server that stops ended with %v", err)
	}
	b.ask(t, access.Viewer, "GET", "/v1/live", "").problemIn(t, http.StatusServiceUnavailable)
}

// A HEAD request takes no place of a listener.
func TestLive_HeadDoesNotListen(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.MaxListeners = 1 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, b.http.URL+"/v1/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.tokens[access.Viewer])
	own := new(http.Transport) // whose connection stays open
	defer own.CloseIdleConnections()
	resp, err := own.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	s := b.listen(t)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" || s.resp.StatusCode != 200 {
		t.Errorf("HEAD = %d %v, and then GET = %d", resp.StatusCode, resp.Header, s.resp.StatusCode)
	}
}

// An event stream outlives the read and write timeouts of a server.
func TestLive_OutlivesTheServersTimeouts(t *testing.T) {
	t.Parallel()
	const short = 3 * time.Second // no shorter, for the machine may pause before the first event
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			srv := httptest.NewUnstartedServer(b.Handler())
			srv.EnableHTTP2 = http2
			srv.Config.ReadTimeout, srv.Config.WriteTimeout = short, short
			srv.StartTLS()
			defer srv.Close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/v1/live", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+b.tokens[access.Viewer])
			resp, err := srv.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.Proto != name {
				t.Fatalf("it is %s", resp.Proto)
			}
			s := &sse{t: t, resp: resp, r: bufio.NewReader(resp.Body)}
			s.next("status", func([]byte) bool { return true })
			time.Sleep(short + time.Second)
			id := b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{}).EventID.String()
			s.next("dead_letters", func(data []byte) bool { return strings.Contains(string(data), id) })
		})
	}
}

// A job whose row was removed is not reported as an unreachable database.
func TestLive_JobIsGone(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	ctx := t.Context()
	job, err := b.jobs().Create(ctx, jobs.Spec{Action: dlq.ActionSuspend}, dlq.Actor{Name: "mara"})
	if err != nil {
		t.Fatal(err)
	}
	v := poller{l: b.live, database: &databaseState{l: b.live}}
	if err := v.pollJobs(ctx, ctx); err != nil || len(v.jobs) != 1 {
		t.Fatalf("pollJobs() = %v, sees %v", err, v.jobs)
	}
	if err := b.Session.Query("DELETE FROM dead_letter_jobs WHERE id = ?", job.ID).Exec(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := v.pollJobs(ctx, ctx); err != nil || len(v.jobs) != 0 {
			t.Errorf("pollJobs() of a job that is gone = %v, sees %v", err, v.jobs)
		}
	}
}

// A poller whose listeners have all left takes no changes from new listeners.
func TestLive_OneThatIsStoppedTakesNoChanges(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	over, stop := context.WithCancel(t.Context())
	stop()
	v := poller{l: newLive(&b.cfg, b.metrics, b.live.sources)}
	v.l.own[gocql.TimeUUID()] = struct{}{}
	if err := v.pollDeadLetters(t.Context(), over); err != nil || len(v.l.own) != 1 {
		t.Errorf("pollDeadLetters() of one that is stopped = %v, and leaves %d of 1 changes", err, len(v.l.own))
	}
}
