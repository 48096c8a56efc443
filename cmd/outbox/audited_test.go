package main

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// audited is an entry of the audit trail.
type audited struct{ Actor, Action, Target, Reason, State string }

// trail returns the audit trail of the fixture in the order of the requests, and its details
// and outcomes.
func (b *verifyFixture) trail(t *testing.T) (all []audited, details []string) {
	t.Helper()
	var e audited
	var detail, outcome string
	iter := b.session.Query("SELECT actor, action, target, reason, state, detail, outcome FROM outbox.admin_audit").Iter()
	for iter.Scan(&e.Actor, &e.Action, &e.Target, &e.Reason, &e.State, &detail, &outcome) {
		all, details = append(all, e), append(details, detail+" "+outcome)
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	return all, details
}

// Changes at the subscriptions API leave entries in the audit trail, with the reason of the
// command. Programs may omit it. What only reads, or consumes, leaves none.
func TestSubscriptions_ChangesAreAudited(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	secret, tokens := token(t, "admin")
	yaml, err := os.ReadFile(tokens)
	if err != nil {
		t.Fatal(err)
	}
	with, _ := b.startSubscriptionsWith(t, strings.Replace(string(yaml), "admin:", "http:", 1))
	open, _ := b.startSubscriptions(t)
	file := writeFile(t, "mail.yaml", "name: mail\ntopics: [things]\n")
	for _, tt := range []struct {
		args string
		code int
	}{
		{"subscriptions apply -f " + file + " --reason first", cli.ExitOK},
		{"subscriptions pause mail", cli.ExitUsage},
		{"subscriptions pause mail --reason INC-7", cli.ExitOK},
		{"subscriptions resume mail --reason over -o json", cli.ExitOK},
		{"subscriptions seek mail --to never --reason typo --yes", cli.ExitFailed},
		{"subscriptions seek mail --to latest --reason skip --yes", cli.ExitOK},
		{"subscriptions purge mail --dry-run", cli.ExitOK},
		{"subscriptions purge mail --reason old", cli.ExitUsage},
		{"subscriptions purge mail --yes", cli.ExitUsage},
		{"subscriptions purge mail --yes --reason old", cli.ExitOK},
		{"subscriptions end-lease mail things:0:0:1 --reason stuck --yes", cli.ExitFailed},
		{"subscriptions reject mail things:0:0:1 --reason hopeless --yes", cli.ExitFailed},
		{"subscriptions list", cli.ExitOK},
		{"subscriptions delete mail --yes", cli.ExitUsage},
		{"subscriptions delete mail --reason unused", cli.ExitUsage},
		{"subscriptions delete mail --yes --reason unused", cli.ExitOK},
	} {
		var out, errOut bytes.Buffer
		if code := run(append(strings.Fields(tt.args), "--config", apiSettings(t, with, secret)), &out, &errOut); code != tt.code {
			t.Errorf("outbox %s = %d, want %d\n%s%s", tt.args, code, tt.code, out.String(), errOut.String())
		}
	}
	want := []audited{
		{"ann", "put-subscription", "mail", "first", "done"},
		{"ann", "pause-subscription", "mail", "INC-7", "done"},
		{"ann", "resume-subscription", "mail", "over", "done"},
		{"ann", "seek-subscription", "mail", "typo", "refused"},
		{"ann", "seek-subscription", "mail", "skip", "done"},
		{"ann", "purge-subscription", "mail", "old", "done"},
		{"ann", "end-lease", "mail", "stuck", "refused"},
		{"ann", "reject-lease", "mail", "hopeless", "refused"},
		{"ann", "delete-subscription", "mail", "unused", "done"},
	}
	if got, _ := b.trail(t); !sameEntries(got, want) {
		t.Errorf("the audit trail has %+v,\nwant %+v", got, want)
	}
	// A program without tokens, on loopback.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, open+"/v1/subscriptions/own", strings.NewReader(`{"topics":["things"]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("PUT = %+v, %v", resp, err)
	}
	if got, _ := b.trail(t); !slices.Contains(got, audited{"anonymous", "put-subscription", "own", "", "done"}) {
		t.Errorf("the audit trail has %+v", got)
	}
}

// sameEntries reports whether the entries are equal but for their order: entries of one millisecond
// have random ids.
func sameEntries(a, b []audited) bool {
	count := func(all []audited) map[audited]int {
		n := make(map[audited]int)
		for _, e := range all {
			n[e]++
		}
		return n
	}
	return reflect.DeepEqual(count(a), count(b))
}

// A repair needs a reason and leaves an entry with its result; without missing events there is
// no change.
func TestVerify_RepairIsAudited(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	b.add(1, outbox.NewID().UUID(), 1)
	if _, errOut, code := b.verify("--until", "0s", "--repair"); code != cli.ExitUsage || !strings.Contains(errOut, "--reason is required") {
		t.Errorf("without a reason: %d %s", code, errOut)
	}
	if out, errOut, code := b.verify("--until", "0s", "--repair", "--reason", "INC-7"); code != cli.ExitOK {
		t.Errorf("nothing is missing: %d %s%s", code, out, errOut)
	}
	if got, _ := b.trail(t); len(got) != 0 {
		t.Errorf("without a change the audit trail has %+v", got)
	}
	lost := b.add(1, outbox.NewID().UUID(), 0)
	if out, _, code := b.verify("--until", "0s", "--repair", "--reason", "INC-7", "--actor", "eve", "--repair-wait", "1ns"); code != cli.ExitFailed {
		t.Errorf("status %d: %s", code, out)
	}
	got, details := b.trail(t)
	if want := []audited{{"eve", "repair-events", "outbox", "INC-7", "done"}}; !slices.Equal(got, want) || !strings.Contains(details[0], lost.ID.String()) || !strings.Contains(details[0], `{"left":1,"published":0}`) {
		t.Errorf("the audit trail has %+v %q, want %+v", got, details, want)
	}
}

// A requested scan of the outbox leaves an entry before the relay works.
func TestRelay_BackfillIsAudited(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "off") // the limit of a relay is not that of the tests
	b := setupVerify(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, errOut bytes.Buffer
	root := newRoot(&out, &errOut)
	root.SetContext(ctx)
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Execute(root, []string{
			"relay", "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--ops-addr", "off", "--relay-topics", "ThingHappened=things",
			"--backfill-from", "2026-01-02T15:04:05Z", "--reason", "CDC was off", "--actor", "eve",
		}, &errOut)
	}()
	want := audited{"eve", "request-backfill", "outbox", "CDC was off", "done"}
	world.Eventually(t, "the entry is written", func() bool {
		got, details := b.trail(t)
		return len(got) == 1 && got[0] == want && strings.Contains(details[0], "2026-01-02T15:04:05Z")
	})
	stop()
	if code := <-ended; code != cli.ExitOK {
		t.Errorf("outbox relay = %d\n%s%s", code, out.String(), errOut.String())
	}
}

// The audit list shows changes of all commands.
func TestAudit_ListsRepairs(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	b.add(1, outbox.NewID().UUID(), 0)
	b.verify("--until", "0s", "--repair", "--reason", "INC-7", "--repair-wait", "1ns")
	var out, errOut bytes.Buffer
	if code := run([]string{"audit", "list", "--action", "repair-events", "--scylla-hosts", b.e.CQLAddr}, &out, &errOut); code != cli.ExitOK || !strings.Contains(out.String(), "INC-7") {
		t.Errorf("outbox audit list = %d\n%s%s", code, out.String(), errOut.String())
	}
}
