package main

import (
	"io"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// completions returns the completions of the word after args, without descriptions.
func completions(t *testing.T, args ...string) (words []string) {
	t.Helper()
	var out strings.Builder
	if code := run(append(append([]string{"__complete"}, args...), ""), &out, io.Discard); code != cli.ExitOK {
		t.Errorf("completion of %v: status %d", args, code)
	}
	for line := range strings.Lines(out.String()) {
		if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(word, ":") {
			words = append(words, word)
		}
	}
	return words
}

// The shell completes the ids of open dead letters that are not on the command line yet.
func TestComplete_EventIDs(t *testing.T) {
	t.Parallel()
	onBothAPIs(t, func(t *testing.T, b *dlqFixture) {
		one := b.writeDeadLetter(1, nil)
		two := b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.AggregateID = "b" })
		closed := b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.AggregateID = "c" })
		b.run(cli.ExitOK, append([]string{"discard", closed, "--yes", "--reason", "a test"}, b.by("eve")...)...)
		for _, args := range [][]string{{"dlq", "get"}, {"dlq", "replay"}, {"dlq", "edit"}, {"events", "get"}} {
			got := strings.Join(completions(t, append(args, b.target()...)...), " ")
			if !strings.Contains(got, one) || !strings.Contains(got, two) || strings.Contains(got, closed) {
				t.Errorf("outbox %v completes to %s, want %s and %s", args, got, one, two)
			}
		}
		if got := completions(t, append([]string{"dlq", "replay", one}, b.target()...)...); len(got) != 1 || got[0] != two {
			t.Errorf("after %s: %s, want %s", one, got, two)
		}
	})
}

// The shell completes the names of subscriptions.
func TestComplete_Subscriptions(t *testing.T) {
	t.Parallel()
	q := startQueue(t)
	for _, name := range []string{"mail", "stock"} {
		if _, err := q.Put(t.Context(), subscriptions.Subscription{Name: name, Topics: []string{"OrderCreated"}}, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{"subscriptions get", "subscriptions pause", "subscriptions seek --to latest", "subscriptions end-lease", "consume"} {
		if got := strings.Join(completions(t, append(strings.Fields(args), "--api-subscriptions-url", q.url)...), " "); got != "mail stock" {
			t.Errorf("outbox %s completes to %q", args, got)
		}
	}
	for _, args := range []string{"subscriptions get mail", "subscriptions list"} {
		if got := completions(t, append(strings.Fields(args), "--api-subscriptions-url", q.url)...); len(got) != 0 {
			t.Errorf("outbox %s completes to %q", args, got)
		}
	}
}
