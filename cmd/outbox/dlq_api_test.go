package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// onBothAPIs runs a test of commands that use the database, and of commands that use the
// admin API of a server and have no settings of the database.
func onBothAPIs(t *testing.T, test func(*testing.T, *dlqFixture)) {
	onDatabaseAndServer(t, setupDLQ, func(b *dlqFixture) { b.serve(nil) }, test)
}

// onDatabaseAndServer runs a test with a world, and with another one whose commands use its
// server.
func onDatabaseAndServer[W any](t *testing.T, setup func(*testing.T) W, serve func(W), test func(*testing.T, W)) {
	t.Run("database", func(t *testing.T) {
		t.Parallel()
		test(t, setup(t))
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		serve(w)
		test(t, w)
	})
}

// serverActor is the owner of the token of serve.
const serverActor = "ann"

// serve starts an admin API with a runner of jobs, and makes the commands use it.
func (b *dlqFixture) serve(change func(*admin.Config)) {
	b.t.Helper()
	url, secret := b.startAPI(access.Admin, change)
	b.server = apiSettings(b.t, url, secret)
}

// startAPI starts an admin API with a runner of jobs, and returns its URL and a token.
func (b *dlqFixture) startAPI(role access.Role, change func(*admin.Config)) (url, secret string) {
	b.t.Helper()
	secret, hash := access.NewToken()
	gate, err := access.New(access.Config{Tokens: []access.Token{{Name: serverActor, Role: role, Hash: hash}}, RequestsPerSecond: 1e6, RequestsBurst: 1e6})
	if err != nil {
		b.t.Fatal(err)
	}
	conf := admin.Config{Session: b.session, Keyspace: "outbox", DeadLetters: b.store, Gate: gate}
	runs := jobs.RunnerConfig{Poll: 20 * time.Millisecond}
	if change != nil {
		if change(&conf); conf.Archive != nil {
			runs.Archive = conf.Archive
		}
	}
	server, err := admin.New(conf)
	if err != nil {
		b.t.Fatal(err)
	}
	srv := httptest.NewServer(server.Handler())
	b.t.Cleanup(srv.Close)
	world.Run(b.t, jobs.NewRunner(b.jobs(), runs).Run)
	return srv.URL, secret
}

// serveAdmin starts 'outbox admin' with a token of a role, and makes the commands use it.
func (b *verifyFixture) serveAdmin(role access.Role) {
	b.t.Helper()
	secret, hash := access.NewToken()
	c, err := parseConfig(b.t, fmt.Sprintf("admin:\n  tokens: [%q]\n", access.Token{Name: serverActor, Role: role, Hash: hash}), nil,
		"--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--admin-addr", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	gate, err := c.AdminGate(log)
	if err != nil {
		b.t.Fatal(err)
	}
	a, err := app.StartAdmin(b.t.Context(), c, gate, b.session, nil, app.NewRegistry(""), log, c.ListenAdmin)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := a.Shutdown(); err != nil {
			b.t.Error(err)
		}
	})
	b.server = apiSettings(b.t, "http://"+a.Addr, secret)
}

// onDatabaseAndAdmin is onBothAPIs with 'outbox admin' as the server.
func onDatabaseAndAdmin(t *testing.T, test func(*testing.T, *verifyFixture)) {
	onDatabaseAndServer(t, setupVerify, func(b *verifyFixture) { b.serveAdmin(access.Admin) }, test)
}

// apiSettings writes a configuration file of commands.
func apiSettings(t *testing.T, url, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(file, []byte("api:\n  admin_url: "+url+"\n  token: "+secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// forbidEngines adds a database, a broker and an archive to the settings of the commands.
// The test fails if a command connects to one.
func (b *verifyFixture) forbidEngines() {
	b.t.Helper()
	ln, err := new(net.ListenConfig).Listen(b.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			b.t.Error("a command has connected to the database or to Kafka")
			_ = c.Close()
		}
	}()
	text, err := os.ReadFile(b.server)
	if err != nil {
		b.t.Fatal(err)
	}
	text = fmt.Appendf(text, "scylla:\n  hosts: [%[1]s]\nkafka:\n  seeds: [%[1]s]\narchive:\n  url: %s\n", ln.Addr(), filepath.Join(b.t.TempDir(), "none", "none"))
	if err := os.WriteFile(b.server, text, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// target returns the flags that select the API of the commands.
func (b *verifyFixture) target() []string {
	if b.server != "" {
		return []string{"--config", b.server}
	}
	return []string{"--scylla-hosts", b.e.CQLAddr}
}

// by returns the flags of an actor. A server knows the actor by the token.
func (b *verifyFixture) by(name string) []string {
	if b.server != "" {
		return nil
	}
	return []string{"--actor", name}
}

// actor returns the name of the actor of by in records.
func (b *verifyFixture) actor(name string) string {
	if b.server != "" {
		return serverActor
	}
	return name
}

// A command that is interrupted pauses its job, wherever it runs, and the audit trail
// contains that.
func TestDLQ_InterruptionPausesTheJob(t *testing.T) {
	t.Parallel()
	onBothAPIs(t, func(t *testing.T, b *dlqFixture) {
		for i := range 5 {
			b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.AggregateID = fmt.Sprint("a", i) })
		}
		ctx, interrupt := context.WithCancel(t.Context())
		var out, errOut bytes.Buffer
		root := newRoot(&out, &errOut)
		root.SetContext(ctx)
		code := make(chan int)
		go func() {
			code <- cli.Execute(root, append(append([]string{"dlq", "discard", "--all", "--rate", "0.01", "--batch-size", "1", "--yes", "--reason", "INC-7"}, b.by("eve")...), b.target()...), &errOut)
		}()
		list := func() []admin.JobBody {
			out, _ := b.run(cli.ExitOK, "jobs", "list", "-o", "json")
			return decodeItems[admin.JobBody](t, out)
		}
		world.Eventually(t, "the job has begun", func() bool { l := list(); return len(l) == 1 && l[0].State == jobs.Running })
		interrupt()
		if got := <-code; got != cli.ExitFailed || !strings.Contains(errOut.String(), "is paused after") || !strings.Contains(errOut.String(), "outbox dlq jobs resume") {
			t.Errorf("exit status %d: %s%s", got, out.String(), errOut.String())
		}
		j := list()[0]
		if h := j.History[len(j.History)-1]; j.State != jobs.Paused || h.By != b.actor("eve") || h.Why != "the command was interrupted" {
			t.Errorf("the job is %+v, want it paused by the command", j)
		}
		var state string
		if err := b.session.Query("SELECT state FROM outbox.admin_audit WHERE action = 'pause-job' ALLOW FILTERING").Scan(&state); err != nil || state != "done" {
			t.Errorf("the audit trail contains the pause as %q, %v", state, err)
		}
	})
}

// With an API the commands connect neither to the database nor to Kafka.
func TestDLQ_ServerNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	id := b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.CreatedAt = testTime })
	url, secret := b.startAPI(access.Admin, nil)
	b.server = apiSettings(t, url, secret)
	b.forbidEngines()
	for _, args := range [][]string{
		{"list"},
		{"get", id},
		{"stats"},
		{"replay", id, "--force", "--wait", "0"},
		{"edit", id, "--header", "k=v", "--dry-run"},
		{"set", id, "--priority", "5"},
		{"discard", id},
		{"jobs", "list"},
		{"purge", id, "--no-archive"},
	} {
		if args[0] != "list" && args[0] != "stats" && args[0] != "get" && args[0] != "jobs" {
			args = append(args, "--yes", "--reason", "a test")
		}
		want := cli.ExitOK
		if args[0] == "replay" {
			want = cli.ExitWaits
		}
		b.run(want, args...)
	}
	if out := b.complete("list", "--error-class", ""); strings.Contains(out, secret) {
		t.Errorf("a completion contains the token: %s", out)
	}
}

// A job that is left to the server is done there; other commands watch it and steer it.
func TestDLQ_ServerRunsJobs(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	b.serve(nil)
	for i := range 5 {
		b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.AggregateID = fmt.Sprint("a", i) })
	}
	create := func(args ...string) (job admin.JobBody) {
		t.Helper()
		out, _ := b.run(cli.ExitWaits, append([]string{"suspend", "--all", "--yes", "--reason", "a test", "--detach", "-o", "json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &job); err != nil || job.ID == "" {
			t.Fatalf("suspend --detach printed %s, %v", out, err)
		}
		return job
	}
	if out, _ := b.run(cli.ExitOK, "jobs", "watch", create().ID); !strings.Contains(out, "is done") || len(b.ids("--status", "suspended")) != 5 {
		t.Errorf("jobs watch printed %q", out)
	}
	slow := create("--rate", "0.01", "--batch-size", "1").ID
	b.run(cli.ExitOK, "jobs", "pause", slow, "--reason", "a test")
	b.run(cli.ExitOK, "jobs", "resume", slow, "--yes", "--detach", "--reason", "a test")
	if out, _ := b.run(cli.ExitOK, "jobs", "cancel", slow, "--yes", "--reason", "a test"); !strings.Contains(out, "cancelled") || !strings.Contains(out, "finished") {
		t.Errorf("jobs cancel printed %q", out)
	}
	id := b.writeDeadLetter(1, nil)
	b.run(cli.ExitWaits, "replay", id, "--yes", "--reason", "a test", "--wait", "100ms", "--force")
	if _, errOut := b.run(cli.ExitUsage, "discard", id, "--yes", "--reason", "a test", "--actor", "eve"); !strings.Contains(errOut, "--actor and --api-admin-url") {
		t.Errorf("--actor with an API says %q", errOut)
	}
}

// The archive of a server is purged to and restored from with its settings.
func TestDLQ_ServerHasTheArchive(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	a, err := archive.Open(t.Context(), filepath.Join(t.TempDir(), "archive"))
	if err != nil {
		t.Fatal(err)
	}
	sweeper, err := archive.NewSweeper(archive.Config{Store: b.store, Archive: a, Owner: "server", Resolved: 30 * 24 * time.Hour, Failed: 90 * 24 * time.Hour, Keep: 365 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	b.serve(func(c *admin.Config) { c.Archive = sweeper })
	id := b.writeDeadLetter(1, nil)
	b.discard(id)
	b.run(cli.ExitOK, "purge", id, "--yes", "--reason", "a test")
	out, _ := b.run(cli.ExitOK, "archive", "list", "-o", "json")
	objects := decodeItems[admin.ArchiveObject](t, out)
	if len(objects) != 1 {
		t.Fatalf("archive list printed %s", out)
	}
	if out, _ := b.run(cli.ExitOK, "get", id); !strings.Contains(out, objects[0].Object) {
		t.Errorf("show lacks the object: %s", out)
	}
	b.run(cli.ExitOK, "archive", "restore", "--object", objects[0].Object, "--yes", "--reason", "a test")
	if st := b.status(id); st != dlq.Resolved {
		t.Errorf("restored it is %s", st)
	}
	b.run(cli.ExitOK, "archive", "run", "--yes", "--reason", "a test")
}

// An error of the API contains the fix, and never the token.
func TestAPI_ErrorsNameTheFix(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	id := b.writeDeadLetter(1, nil)
	viewer, secret := b.startAPI(access.Viewer, nil)
	answer := func(code int, header, body string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", header)
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	newer := answer(200, "", `{"total":1,"open":1,"by_status":{},"open_by_error_class":{},"open_by_event_type":{},"added_later":{"x":1}}`)
	discard, stats := []string{"discard", id, "--yes", "--reason", "a test"}, []string{"stats"}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		url, token string
		args       []string
		code       int
		want       []string
	}{
		"token in a file":      {viewer, "file:" + token, stats, cli.ExitOK, []string{"1 open"}},
		"newer server":         {newer, secret, stats, cli.ExitOK, []string{"1 open"}},
		"wrong token":          {viewer, secret + "x", stats, cli.ExitFailed, []string{"unknown or has expired", "OUTBOX_API_TOKEN", "outbox token NAME"}},
		"no token":             {viewer, `""`, stats, cli.ExitUsage, []string{"OUTBOX_API_TOKEN"}},
		"no file of a token":   {viewer, "file:" + token + "x", stats, cli.ExitUsage, []string{"OUTBOX_API_TOKEN", token + "x"}},
		"role":                 {viewer, secret, discard, cli.ExitFailed, []string{"needs the role operator", "ann has the role viewer", "OUTBOX_API_TOKEN"}},
		"unknown event":        {viewer, secret, []string{"get", "01a2005c-395d-72e3-8401-994110828553"}, cli.ExitFailed, []string{"no dead letter of this event", "outbox dlq list"}},
		"unknown job":          {viewer, secret, []string{"jobs", "get", "01a2005c-395d-11e3-8401-994110828553"}, cli.ExitFailed, []string{"no such job", "outbox dlq jobs list"}},
		"another server":       {viewer + "/other", secret, stats, cli.ExitFailed, []string{"no such endpoint", "URL of 'outbox admin'"}},
		"no API":               {answer(200, "", "<html>"), secret, stats, cli.ExitFailed, []string{"is http://127.0.0.1", "the URL of an admin API"}},
		"redirect":             {answer(302, viewer, ""), secret, stats, cli.ExitFailed, []string{"status 302"}},
		"database unreachable": {answer(503, "", `{"detail":"The database cannot be reached; retry later.","request_id":"r-1"}`), secret, stats, cli.ExitFailed, []string{"the database cannot be reached", "r-1", "retry later"}},
		"server unreachable":   {"http://127.0.0.1:1", secret, stats, cli.ExitFailed, []string{"http://127.0.0.1:1", "connection refused", "OUTBOX_API_ADMIN_URL"}},
		"unencrypted":          {"http://outbox.example.com", secret, stats, cli.ExitUsage, []string{"unencrypted", "https"}},
		"user in the URL":      {"http://ann:" + secret + "@localhost", secret, stats, cli.ExitUsage, []string{"contains a user"}},
		"no URL":               {"localhost:8090", secret, stats, cli.ExitUsage, []string{"api.admin_url (--api-admin-url)"}},
		"certificate file":     {"https://localhost", secret, []string{"stats", "--api-tls-ca", token}, cli.ExitUsage, []string{"api.tls_ca"}},
		"invalid request":      {viewer, secret, []string{"list", "--aggregate-id", strings.Repeat("x", 1001)}, cli.ExitUsage, []string{"query.aggregate"}},
	} {
		var out, errOut bytes.Buffer
		code := run(append(append([]string{"dlq"}, tt.args...), "--config", apiSettings(t, tt.url, tt.token)), &out, &errOut)
		text := out.String() + errOut.String()
		if code != tt.code || strings.Contains(text, secret) {
			t.Errorf("%s: exit status %d, want %d: %s", name, code, tt.code, text)
		}
		for _, want := range tt.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %s lacks %q", name, text, want)
			}
		}
	}
}

// The certificate of a server is verified, with the system's authorities or a file.
func TestAPI_VerifiesTheCertificate(t *testing.T) {
	t.Parallel()
	asked := 0
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Header.Get("Authorization") != "Bearer t-1" {
			t.Errorf("the request has the token %q", r.Header.Get("Authorization"))
		}
		_, _ = w.Write([]byte(`{"open":7}`))
	}))
	t.Cleanup(srv.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	args := []string{"dlq", "stats", "--config", apiSettings(t, srv.URL, "t-1")}
	if code := run(args, &out, &errOut); code != cli.ExitFailed || asked != 0 || !strings.Contains(errOut.String(), "certificate") || !strings.Contains(errOut.String(), "--api-tls-ca") {
		t.Errorf("an unknown authority: exit status %d after %d requests: %s", code, asked, errOut.String())
	}
	if code := run(append(args, "--api-tls-ca", ca), &out, &errOut); code != cli.ExitOK || !strings.HasPrefix(out.String(), "7 open") {
		t.Errorf("with the authority: exit status %d: %s%s", code, out.String(), errOut.String())
	}
}
