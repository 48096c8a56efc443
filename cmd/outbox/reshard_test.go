package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

func (b *verifyFixture) reshard(args ...string) (stdout, stderr string, code int) {
	b.t.Helper()
	var out, errOut bytes.Buffer
	target := b.target()
	if b.server == "" {
		target = append(target, "--kafka-seeds", b.e.KafkaAddr)
	}
	code = run(append(append([]string{"relay", "reshard"}, args...), target...), &out, &errOut)
	return out.String(), errOut.String(), code
}

func (b *verifyFixture) resharding(to int) *app.Resharding {
	b.t.Helper()
	c, err := parseConfig(b.t, "", nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr)
	if err != nil {
		b.t.Fatal(err)
	}
	return app.NewResharding(c, b.session, b.client, to)
}

// agreedShards returns the number of shards in relay_sharing.
func (b *verifyFixture) agreedShards() int {
	b.t.Helper()
	a := relay.Agreement{Session: b.session, Keyspace: "outbox", Name: relay.Defaults().Name}
	n, err := a.Shards(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// awaitRefusal waits for an instance to end by itself, and checks that it reports the reason.
func (s *sharer) awaitRefusal(t *testing.T, shards int, want ...string) {
	t.Helper()
	var err error
	select {
	case err = <-s.ended:
		s.ended <- nil
	case <-time.After(5 * time.Minute):
		_, text := s.detail(t)
		t.Fatalf("an instance with %d shards is not refused: %s", shards, text)
	}
	var h cli.Hint
	var usage cli.UsageError
	if !errors.As(err, &h) || !errors.As(err, &usage) {
		t.Errorf("an instance with %d shards: %v, want a usage error with a hint", shards, err)
		return
	}
	for _, w := range append(want, fmt.Sprintf("relay.shards is %d", shards), "outbox relay reshard --shards") {
		if text := err.Error() + "; " + h.Text; !strings.Contains(text, w) {
			t.Errorf("an instance with %d shards says %q, want %q", shards, text, w)
		}
	}
}

// While an instance runs nothing is changed. When it is stopped the number is changed,
// both ways, and those with another one refuse, naming both and the command.
func TestReshard_ChangesTheNumber(t *testing.T) {
	t.Parallel()
	onDatabaseAndAdmin(t, testReshardChangesTheNumber)
}

func testReshardChangesTheNumber(t *testing.T, b *verifyFixture) {
	one := b.share(2)
	one.awaitShards(t, 2)
	if n := b.agreedShards(); n != 2 {
		t.Errorf("the first instance has agreed on %d shards, want 2", n)
	}
	_, stderr, code := b.reshard("--shards", "3", "--yes", "--reason", "a test")
	if code != cli.ExitFailed || !strings.Contains(stderr, "instances of the relay run: "+self.Process()+"\n") || b.agreedShards() != 2 {
		t.Errorf("beside an instance: status %d, agreed on %d\n%s", code, b.agreedShards(), stderr)
	}
	var heard []string
	iter, name := b.session.Query("SELECT instance FROM relay_instances WHERE scope = ?", "keyspace").WithContext(t.Context()).Iter(), ""
	for iter.Scan(&name) {
		heard = append(heard, heartbeat.ProcessName(name))
	}
	if err := iter.Close(); err != nil || len(heard) == 0 || slices.ContainsFunc(heard, func(name string) bool { return name != self.Process() }) {
		t.Errorf("heard of %v, %v; want the process alone", heard, err)
	}
	one.leave()

	stdout, stderr, code := b.reshard("--shards", "3", "--dry-run")
	if code != cli.ExitOK || stdout != "" || !strings.Contains(stderr, "to do: agree on 3, add 1 partition to the topic") || b.agreedShards() != 2 {
		t.Errorf("dry run: status %d, agreed on %d\n%s%s", code, b.agreedShards(), stdout, stderr)
	}
	if _, stderr, code = b.reshard("--shards", "3", "--reason", "a test"); code != cli.ExitUsage || !strings.Contains(stderr, "--yes") || b.agreedShards() != 2 {
		t.Errorf("without --yes: status %d, agreed on %d\n%s", code, b.agreedShards(), stderr)
	}
	stdout, stderr, code = b.reshard(append([]string{"--shards", "3", "--yes", "--reason", "more hosts"}, b.by("ann")...)...)
	if code != cli.ExitOK || !strings.Contains(stdout, "divided into 3 shards: set relay.shards to 3") {
		t.Errorf("status %d\n%s%s", code, stdout, stderr)
	}
	var actor, action, detail, reason, state string
	if err := b.session.Query("SELECT actor, action, detail, reason, state FROM outbox.admin_audit LIMIT 1").Scan(&actor, &action, &detail, &reason, &state); err != nil {
		t.Fatal(err)
	}
	if got := []string{actor, action, detail, reason, state}; !slices.Equal(got, []string{b.actor("ann"), "reshard-relay", `{"from":2,"to":3}`, "more hosts", "done"}) {
		t.Errorf("the audit has %q", got)
	}
	b.share(2).awaitRefusal(t, 2, "divided into 3 shards", "set relay.shards to 3")
	two := b.share(3)
	two.awaitShards(t, 3)
	two.leave()
	if stdout, stderr, code = b.reshard("--shards", "1", "--yes", "--reason", "a test"); code != cli.ExitOK {
		t.Errorf("status %d\n%s%s", code, stdout, stderr)
	}
	three := b.share(1)
	three.awaitShards(t, 1)
	if _, stderr, code = b.reshard("--shards", "1", "--yes", "--reason", "a test"); code != cli.ExitOK || !strings.Contains(stderr, "divided into 1 shard already") {
		t.Errorf("once more: status %d\n%s", code, stderr)
	}
}

// With an API the command connects neither to the database nor to Kafka. Only an admin
// changes the number, of the relay of the server; a server without the operation is older.
func TestReshard_Server(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	for _, role := range []access.Role{access.Operator, access.Admin} {
		b.serveAdmin(role)
		b.forbidEngines()
		args := []string{"--shards", "3", "--yes", "--reason", "more hosts"}
		if role == access.Operator {
			if _, stderr, code := b.reshard(args...); code != cli.ExitFailed || !strings.Contains(stderr, "needs the role admin") || !strings.Contains(stderr, "OUTBOX_API_TOKEN") {
				t.Errorf("by an operator: status %d\n%s", code, stderr)
			}
			continue
		}
		if _, stderr, code := b.reshard(append(args, "--relay-name", "other")...); code != cli.ExitFailed || !strings.Contains(stderr, `relay "outbox" only`) || !strings.Contains(stderr, "--relay-name") {
			t.Errorf("another relay: status %d\n%s", code, stderr)
		}
		if n := b.agreedShards(); n != 0 {
			t.Errorf("after refusals there are %d shards", n)
		}
		if stdout, stderr, code := b.reshard(args...); code != cli.ExitOK || !strings.Contains(stdout, "divided into 3 shards") || b.agreedShards() != 3 {
			t.Errorf("by an admin: status %d, agreed on %d\n%s%s", code, b.agreedShards(), stdout, stderr)
		}
	}
	text, err := os.ReadFile(b.server)
	if err != nil {
		t.Fatal(err)
	}
	older := bytes.Replace(text, []byte("\n  token"), []byte("/other\n  token"), 1)
	if err := os.WriteFile(b.server, older, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := b.reshard("--shards", "4", "--dry-run"); code != cli.ExitFailed || !strings.Contains(stderr, "no such endpoint") || !strings.Contains(stderr, "of this version or a later one") {
		t.Errorf("without the operation: status %d\n%s", code, stderr)
	}
}

// A change between the preview and the confirmation of another one is not overwritten.
func TestReshard_PreviewIsBinding(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	b.serveAdmin(access.Admin)
	if _, stderr, code := b.reshard("--shards", "2", "--yes", "--reason", "a test"); code != cli.ExitOK {
		t.Fatalf("status %d\n%s", code, stderr)
	}
	text, err := os.ReadFile(b.server)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseConfig(t, string(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(c.API.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	// A proxy makes the other change after the preview.
	proxy, requests := httputil.NewSingleHostReverseProxy(to), 0
	direct := b.server
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests == 2 {
			through := b.server
			b.server = direct
			if _, stderr, code := b.reshard("--shards", "3", "--yes", "--reason", "a test"); code != cli.ExitOK {
				t.Errorf("the other change: status %d\n%s", code, stderr)
			}
			b.server = through
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	b.server = apiSettings(t, srv.URL, c.API.Token)
	_, stderr, code := b.reshard("--shards", "4", "--yes", "--reason", "a test")
	if code != cli.ExitFailed || !strings.Contains(stderr, "the relay has 3 shards, not 2: another change came first") || b.agreedShards() != 3 {
		t.Errorf("after another change: status %d, agreed on %d\n%s", code, b.agreedShards(), stderr)
	}
}

// After an upgrade without the migration, the error names the missing command.
func TestReshard_WithoutItsTable(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	if err := b.session.Query("DROP TABLE outbox.relay_sharing").Exec(); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := b.reshard("--shards", "3", "--yes", "--reason", "a test")
	if code != cli.ExitFailed || !strings.Contains(stderr, "unconfigured table relay_sharing") || !strings.Contains(stderr, "hint: if a table or a column is missing, outbox schema migrate adds it") {
		t.Errorf("status %d, %s", code, stderr)
	}
}

// Wherever the change is killed, instances with the old number refuse, instances with the new one
// work or report how to finish the change, it may be finished or reverted, and every event is
// published once and in order.
func TestReshard_KilledAtAnyStep(t *testing.T) {
	t.Parallel()
	for _, back := range []bool{false, true} {
		t.Run(fmt.Sprint("back=", back), func(t *testing.T) {
			t.Parallel()
			b := setupVerify(t)
			aggregates := make([]gocql.UUID, 12)
			for i := range aggregates {
				aggregates[i] = outbox.NewID().UUID()
			}
			var seq int64
			write := func() {
				seq++
				for _, a := range aggregates {
					b.add(seq, a, 0)
				}
			}
			write()
			one := b.share(2)
			one.awaitShards(t, 2)
			one.leave()
			steps := map[string]bool{}
			shards := 2
			for _, to := range []int{3, 2} {
				for at := 1; shards != to; at++ {
					step, ended := b.killedReshard(to, at)
					steps[step] = true
					write()
					b.share(shards).awaitRefusal(t, shards, fmt.Sprintf("divided into %d shards", to))
					switch {
					case ended: // all steps were made before
						shards = to
					case step == "deleted":
						// An instance with the new number makes the topic itself.
					default:
						b.share(to).awaitRefusal(t, to, "was begun and not finished", fmt.Sprintf("reshard --shards %d; or go back: outbox relay reshard --shards %d", to, shards))
					}
					next := to
					if back && !ended {
						next = shards // it was thought better of
					}
					if _, stderr, code := b.reshard("--shards", fmt.Sprint(next), "--yes", "--reason", "a test"); code != cli.ExitOK {
						t.Fatalf("after a kill at %q: status %d\n%s", step, code, stderr)
					}
					s := b.share(next)
					s.awaitShards(t, next)
					s.leave()
					if !ended && !back { // and to where it was, for the next step
						if _, stderr, code := b.reshard("--shards", fmt.Sprint(shards), "--yes", "--reason", "a test"); code != cli.ExitOK {
							t.Fatalf("back to %d shards: status %d\n%s", shards, code, stderr)
						}
					}
				}
			}
			for _, step := range []string{"agreed", "extended", "deleted", "made"} {
				if !steps[step] {
					t.Errorf("it was never killed at %q", step)
				}
			}
			s := b.share(shards)
			s.awaitShards(t, shards)
			got := b.awaitPublished(t, int(seq)*len(aggregates))
			for _, a := range aggregates {
				want := make([]int64, seq)
				for i := range want {
					want[i] = int64(i + 1)
				}
				if !slices.Equal(got[a], want) {
					t.Errorf("aggregate %s has %v in its topic, want %v", a, got[a], want)
				}
			}
		})
	}
}

// killedReshard begins a change and stops dead after its at-th step; ended reports whether this was
// the last one.
func (b *verifyFixture) killedReshard(to, at int) (step string, ended bool) {
	b.t.Helper()
	killed := errors.New("killed")
	r := b.resharding(to)
	r.Made = func(s string) error {
		step = s
		if at--; at == 0 {
			return killed
		}
		return nil
	}
	if err := r.Look(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	if err := r.Refuse(); err != nil {
		b.t.Fatal(err)
	}
	err := r.Run(context.WithoutCancel(b.t.Context()), "a test")
	if err != nil && !errors.Is(err, killed) {
		b.t.Fatal(err)
	}
	return step, err == nil || step == "extended" || step == "made"
}

// An instance that begins while the number is being changed is either seen, and then
// all stays as it was, or it carries nothing.
func TestReshard_BesideOneThatBegins(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	one := b.share(2)
	one.awaitShards(t, 2)
	one.leave()
	r := b.resharding(3)
	if err := r.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	two := b.share(2)
	two.awaitShards(t, 2)
	if err := r.Run(t.Context(), "a test"); !errors.Is(err, app.ErrInstancesRun) || b.agreedShards() != 2 {
		t.Errorf("run() error = %v, agreed on %d, want that instances run, and 2", err, b.agreedShards())
	}
	if n := len(two.Member.Status().Owned); n != 2 {
		t.Errorf("the instance has %d shards, want 2", n)
	}
	two.leave()
	// And the other way round: it was let begin, and the number is changed before the
	// group gives it a shard.
	if _, err := r.Agreement.Change(t.Context(), 2, 3, "a test"); err != nil {
		t.Fatal(err)
	}
	if err := two.Carry(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "divided into 3 shards") {
		t.Errorf("carry() error = %v, want that there are 3 shards", err)
	}
}

// Of two concurrent changes of the number one fails with the error of a concurrent change: neither
// reports a number that the relay does not have, and one of them divides the topic.
func TestReshard_TwiceAtOnce(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	shards := 2
	for _, at := range []string{"agreed", "extended"} {
		if _, stderr, code := b.reshard("--shards", fmt.Sprint(shards), "--yes", "--reason", "a test"); code != cli.ExitOK {
			t.Fatalf("status %d\n%s", code, stderr)
		}
		r, other := b.resharding(shards+1), shards+2
		r.Made = func(step string) error {
			if step == at {
				if _, stderr, code := b.reshard("--shards", fmt.Sprint(other), "--yes", "--reason", "a test"); code != cli.ExitOK {
					t.Errorf("the other one, after %q: status %d\n%s", at, code, stderr)
				}
			}
			return nil
		}
		if err := r.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context(), "a test"); !errors.Is(err, app.ErrChangedConcurrently) {
			t.Errorf("overtaken after %q: run() error = %v, want that of the concurrent change", at, err)
		}
		state, err := r.Control.State(t.Context())
		if err != nil || state.Partitions != other || b.agreedShards() != other {
			t.Errorf("overtaken after %q: agreed on %d, the topic has %d partitions, %v; want %d", at, b.agreedShards(), state.Partitions, err, other)
		}
		shards = other
	}
	s := b.share(shards)
	s.awaitShards(t, shards)
}
