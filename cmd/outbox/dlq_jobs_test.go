package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

var testTime = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestDLQ_Jobs(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	b.relaySays("running", "closed", -time.Hour)
	for i := range 5 {
		b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.AggregateID = fmt.Sprint("j", i) })
	}
	if _, errOut := b.run(cli.ExitOK, "jobs", "list"); !strings.Contains(errOut, "no job matches") {
		t.Errorf("jobs list of nothing says %q", errOut)
	}
	out, _ := b.run(cli.ExitWaits, "discard", "--all", "--yes", "--reason", "a test", "--detach", "-o", "json", "--batch-size", "2")
	var c admin.JobBody
	if err := json.Unmarshal([]byte(out), &c); err != nil || c.State != jobs.Queued || c.BatchSize != 2 {
		t.Fatalf("discard --detach printed %s, %v", out, err)
	}
	id := c.ID
	if got := b.ids(); len(got) != 5 || b.status(got[0]) != dlq.Pending {
		t.Errorf("a job that nobody runs did something")
	}
	b.run(cli.ExitOK, "jobs", "pause", id, "--reason", "a test")
	b.run(cli.ExitFailed, "jobs", "watch", id)
	b.run(cli.ExitUsage, "jobs", "resume", id)
	b.run(cli.ExitUsage, "jobs", "cancel", id, "--reason", "a test")
	b.run(cli.ExitOK, "jobs", "cancel", id, "--dry-run")
	if out, _ := b.run(cli.ExitOK, "jobs", "resume", id, "--yes", "--actor", "eve", "--reason", "go"); !strings.Contains(out, "5 of 5, 5 changed") || !strings.Contains(out, "resume by eve: go") {
		t.Errorf("jobs resume printed %q", out)
	}
	b.run(cli.ExitFailed, "jobs", "pause", id, "--reason", "a test")
	if out, _ := b.run(cli.ExitOK, "jobs", "watch", id); !strings.Contains(out, "job "+id+" is done") {
		t.Errorf("jobs watch printed %q", out)
	}
	for _, st := range b.ids("--status", "pending") {
		t.Errorf("dead letter %s is left", st)
	}
	one := b.writeDeadLetter(1, nil)
	out, _ = b.run(cli.ExitWaits, "replay", one, "--yes", "--reason", "a test", "--wait", "300ms", "-o", "json")
	if err := json.Unmarshal([]byte(out), &c); err != nil || c.Progress.Changed != 1 || c.Progress.Waiting != 1 || c.FinishedAt == nil {
		t.Errorf("replay without a relay printed %s, %v", out, err)
	}
	out, _ = b.run(cli.ExitOK, "jobs", "list", "-o", "json")
	listed := decodeItems[admin.JobBody](t, out)
	if len(listed) != 2 || listed[1].ID != id || listed[0].Action != dlq.ActionReplay {
		t.Errorf("jobs list printed %s", out)
	}
	if out, _ := b.run(cli.ExitOK, "jobs", "list", "--limit", "1"); strings.Count(out, "\n") != 2 {
		t.Errorf("jobs list --limit 1 printed %q", out)
	}
	for span, want := range map[string]int{"--since 1h": 2, "--until 1h": 0, "--since 2020-01-01 --until 2020-01-02": 0, "--since 1h --until 0s --limit 0": 2} {
		out, _ := b.run(cli.ExitOK, append([]string{"jobs", "list", "-o", "json"}, strings.Fields(span)...)...)
		if found := decodeItems[admin.JobBody](t, out); len(found) != want {
			t.Errorf("jobs list %s printed %s, want %d jobs", span, out, want)
		}
	}
	// The command that cancels a job reports its result, as far as that can be known.
	if out, _ := b.run(cli.ExitWaits, "replay", one, "--yes", "--reason", "a test", "--detach", "--force"); !strings.Contains(out, "is queued") {
		t.Errorf("replay --detach printed %q", out)
	}
	made, err := b.jobs().List(t.Context(), gocql.UUID{}, 1)
	if err != nil || len(made) != 1 {
		t.Fatal(made, err)
	}
	ctx, die := context.WithCancel(t.Context())
	died := make(chan struct{})
	go func() {
		_, _ = jobs.NewRunner(b.jobs(), jobs.RunnerConfig{Owner: "dies", Poll: 20 * time.Millisecond}).RunJob(ctx, made[0].ID)
		close(died)
	}()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) { // it ends with its dead letter, which nobody publishes
		j, err := b.jobs().Read(t.Context(), made[0].ID)
		if err == nil && j.State == jobs.Running && j.Progress.Waiting == 1 {
			break
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("the job that a runner is to leave is %+v, %v", j, err)
		}
	}
	die()
	<-died
	b.run(cli.ExitWaits, "jobs", "cancel", made[0].ID.String(), "--yes", "--reason", "a test", "--wait", "100ms")
	if err := b.store.Discard(t.Context(), b.id(one), dlq.Actor{Name: "eve"}); err != nil {
		t.Fatal(err)
	}
	if out, _ := b.run(cli.ExitOK, "jobs", "cancel", made[0].ID.String(), "--yes", "--reason", "a test"); !strings.Contains(out, "finished") || !strings.Contains(out, "1 changed concurrently") {
		t.Errorf("jobs cancel printed %q", out)
	}
	b.run(cli.ExitOK, "jobs", "get", id, "-o", "yaml")
	b.run(cli.ExitFailed, "jobs", "get", gocql.TimeUUID().String())
	b.run(cli.ExitUsage, "jobs", "get", "x")
	b.run(cli.ExitUsage, "jobs", "list", "--limit", "-1")
	b.run(cli.ExitUsage, "replay", one, "--batch-size", "0")
	b.run(cli.ExitUsage, "replay", one, "--canary", "--wait", "0")

	b.writeDeadLetter(2, nil)
	t.Run("completion", func(t *testing.T) {
		for flag, want := range map[string]string{"--status": "processing", "--error-class": "record_too_large", "--event-type": "OrderCreated"} {
			if out := b.complete("list", flag, ""); !strings.Contains(out, want) {
				t.Errorf("%s completes to %q, want %s", flag, out, want)
			}
		}
		if out := b.complete("jobs", "get", ""); !strings.Contains(out, id) {
			t.Errorf("jobs complete to %q", out)
		}
	})
}

// complete returns the completions that the shell receives.
func (b *dlqFixture) complete(args ...string) string {
	b.t.Helper()
	var out strings.Builder
	all := append([]string{"__complete", "dlq"}, args[:len(args)-2]...)
	if args[0] == "jobs" {
		all = append(append(append(all, "get"), b.target()...), "")
	} else {
		all = append(append(all, b.target()...), args[1], "")
	}
	run(all, &out, &out)
	return out.String()
}

// A replay first checks whether a relay will publish the dead letters.
func TestDLQ_ReplayLooksWhetherAllIsWell(t *testing.T) {
	t.Parallel()
	onBothAPIs(t, testReplayChecks)
}

func testReplayChecks(t *testing.T, b *dlqFixture) {
	id := b.writeDeadLetter(1, nil)
	replay := func(want int, args ...string) string {
		t.Helper()
		_, errOut := b.run(want, append([]string{"replay", id, "--yes", "--reason", "a test", "--wait", "0"}, args...)...)
		return errOut
	}
	for _, tt := range []struct {
		state, breaker string
		age            time.Duration
		want           string
	}{
		{"running", "open", -time.Hour, "the breaker of a shard of the relay of outbox.outbox_messages is open"},
		{"stopped", "closed", -time.Hour, "no relay of outbox.outbox_messages runs"},
		{"running", "closed", time.Minute, "no relay of outbox.outbox_messages runs"},
	} {
		b.relaySays(tt.state, tt.breaker, tt.age)
		if errOut := replay(cli.ExitFailed); !strings.Contains(errOut, "nothing was changed: "+tt.want) || !strings.Contains(errOut, "--force") {
			t.Errorf("%+v: replay says %q", tt, errOut)
		}
		if jobs, err := b.jobs().List(t.Context(), gocql.UUID{}, 10); err != nil || len(jobs) != 0 {
			t.Fatalf("a replay that was refused made a job: %v, %v", jobs, err)
		}
	}
	if err := b.session.Query("DELETE FROM relay_instances WHERE scope = 'keyspace'").Exec(); err != nil {
		t.Fatal(err)
	}
	if errOut := replay(cli.ExitFailed); !strings.Contains(errOut, "no relay of outbox.outbox_messages runs") {
		t.Errorf("replay without any relay says %q", errOut)
	}
	b.relaySays("running", "closed", -time.Hour)
	replay(cli.ExitWaits)
	if _, errOut := b.run(cli.ExitOK, "replay", id, "--dry-run"); strings.Contains(errOut, "not published now") {
		t.Errorf("replay --dry-run says %q", errOut)
	}
	b.relaySays("running", "open", -time.Hour)
	if errOut := replay(cli.ExitWaits, "--force"); !strings.Contains(errOut, "continuing because of --force") {
		t.Errorf("replay --force says %q", errOut)
	}
}

// A job has the statuses of its filter that its action can change, also after a claim.
func TestNarrow(t *testing.T) {
	t.Parallel()
	all := []string{"pending", "blocked", "processing", "suspended"}
	for name, tt := range map[string]struct {
		refused, may map[dlq.Status]int
		want         []string
	}{
		"nothing is refused":   {nil, map[dlq.Status]int{dlq.Pending: 1}, all},
		"blocked ones":         {map[dlq.Status]int{dlq.Blocked: 2}, map[dlq.Status]int{dlq.Pending: 1}, []string{"pending", "processing", "suspended"}},
		"some of a status":     {map[dlq.Status]int{dlq.Suspended: 2}, map[dlq.Status]int{dlq.Suspended: 1}, all},
		"claimed ones":         {map[dlq.Status]int{dlq.Processing: 2}, map[dlq.Status]int{dlq.Pending: 1}, all},
		"each of the filter's": {map[dlq.Status]int{dlq.Pending: 1, dlq.Blocked: 1, dlq.Suspended: 1}, nil, []string{"processing"}},
	} {
		job := admin.NewJobBody{JobTarget: admin.JobTarget{Filter: &admin.FilterBody{Status: all}}}
		p := &admin.PreviewBody{Preview: jobs.Preview{Refused: tt.refused, ByStatus: tt.may}}
		if got := narrow(job, p).Filter.Status; !slices.Equal(got, tt.want) || len(job.Filter.Status) != len(all) {
			t.Errorf("%s: the statuses are %v, want %v", name, got, tt.want)
		}
	}
	job := admin.NewJobBody{JobTarget: admin.JobTarget{Filter: &admin.FilterBody{Status: []string{"blocked"}}}}
	if got := narrow(job, &admin.PreviewBody{Preview: jobs.Preview{Refused: map[dlq.Status]int{dlq.Blocked: 1}}}); len(got.Filter.Status) != 1 {
		t.Errorf("a filter without a status selects others: %v", got.Filter.Status)
	}
}

// What dies between the preview and the yes is not meant, also where the filter ends later.
func TestDLQChange_EndsWithThePreview(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	for _, end := range []string{"", "2026-03-04", "2026-03-05T00:00:00Z"} {
		f := dlqChangeFlags{all: end == "", output: "table", batchSize: 1}
		f.Until = end
		if job, err := f.job(dlq.ActionDiscard, nil, now); err != nil || !job.Filter.Until.Equal(now) {
			t.Errorf("--until %q selects failures before %s (%v), want before %s", end, job.Filter.Until, err, now)
		}
	}
}
