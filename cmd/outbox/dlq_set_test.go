package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func TestDLQ_SetAndFilter(t *testing.T) {
	t.Parallel()
	onBothAPIs(t, testSetAndFilter)
}

func testSetAndFilter(t *testing.T, b *dlqFixture) {
	at := time.Now().UTC().Truncate(time.Millisecond)
	var ids []string
	for i := range 4 {
		ids = append(ids, b.writeDeadLetter(int64(i+1), func(l *dlq.DeadLetter) {
			l.AggregateID, l.Status, l.FirstFailedAt = fmt.Sprint("a", i), dlq.Suspended, at.Add(-time.Duration(i)*time.Minute)
			if i == 3 {
				l.Table = "subscription.inventory"
			}
		}))
	}
	out, _ := b.run(cli.ExitOK, "set", ids[1], ids[2], "--priority", "7", "--add-tag", "vip,night", "--yes", "--reason", "INC-1")
	if !strings.Contains(out, "set: 2 changed") {
		t.Errorf("set printed %q", out)
	}
	b.run(cli.ExitOK, "set", "--tag", "night", "--remove-tag", "night", "--add-tag", "day", "--limit", "1", "--yes", "--reason", "a test")
	for args, want := range map[string][]string{
		"--tag vip": ids[1:3], "--tag night": ids[2:3], "--tag vip,day": ids[1:2], "--min-priority 7": ids[1:3], "--min-priority -100": ids,
		"--table subscription.inventory": ids[3:], "--table outbox.outbox_messages --tag vip": ids[1:3], "--tag none": {},
	} {
		if got := b.ids(strings.Fields(args)...); !slices.Equal(got, want) && len(got)+len(want) > 0 {
			t.Errorf("list %s = %v, want %v", args, got, want)
		}
	}
	out, _ = b.run(cli.ExitOK, "get", ids[1])
	if !strings.Contains(out, "day, vip") || !strings.Contains(out, "priority 0 to 7, tag night added, tag vip added") {
		t.Errorf("show printed %q", out)
	}
	out, _ = b.run(cli.ExitOK, "list", "--wide")
	if !strings.Contains(out, "PRIORITY") || !strings.Contains(out, "day,vip") {
		t.Errorf("list printed %q", out)
	}
	for _, args := range [][]string{
		{"set", ids[0], "--yes", "--reason", "a test"},
		{"set", ids[0], "--priority", "101", "--yes", "--reason", "a test"},
		{"set", ids[0], "--add-tag", "a b", "--yes", "--reason", "a test"},
		{"set", "--priority", "1", "--yes", "--reason", "a test"},
		{"list", "--tag", "a b"},
		{"list", "--min-priority", "101"},
	} {
		b.run(cli.ExitUsage, args...)
	}
}

// A replay by priority takes the highest ones within its limit, not the latest failures.
func TestDLQ_ReplayByPriority(t *testing.T) {
	t.Parallel()
	onBothAPIs(t, testReplayByPriority)
}

func testReplayByPriority(t *testing.T, b *dlqFixture) {
	at := time.Now().UTC().Truncate(time.Millisecond)
	var ids []string
	for i := range 5 {
		ids = append(ids, b.writeDeadLetter(int64(i+1), func(l *dlq.DeadLetter) {
			l.AggregateID, l.Status, l.FirstFailedAt, l.Priority = fmt.Sprint("a", i), dlq.Suspended, at.Add(-time.Duration(i)*time.Minute), i%3
		}))
	}
	out, _ := b.run(cli.ExitWaits, "replay", "--all", "--by-priority", "--limit", "2", "--yes", "--reason", "a test", "--force", "--wait", "0", "-o", "json")
	var c admin.JobBody
	if err := json.Unmarshal([]byte(out), &c); err != nil || c.Progress.Changed != 2 || !c.ByPriority || c.IDs != 2 {
		t.Fatalf("replay printed %q, %v", out, err)
	}
	for i, want := range map[int]dlq.Status{2: dlq.Pending, 4: dlq.Pending, 0: dlq.Suspended, 1: dlq.Suspended, 3: dlq.Suspended} {
		if st := b.status(ids[i]); st != want { // priorities 0 1 2 0 1; of 1 the older one
			t.Errorf("dead letter %d is %s, want %s", i, st, want)
		}
	}
	out, _ = b.run(cli.ExitOK, "jobs", "get", c.ID)
	if !strings.Contains(out, "higher priorities first") {
		t.Errorf("jobs get printed %q", out)
	}
}
