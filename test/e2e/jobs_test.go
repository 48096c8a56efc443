package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// limitRecords makes OrderCreated a topic that accepts only small records; grow ends
// that.
func (c *cluster) limitRecords() (grow func()) {
	c.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.kafkaAddr))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(client.Close)
	admin := kadm.NewClient(client)
	small, large := "3000", "1048576"
	if _, err := admin.CreateTopic(c.t.Context(), 6, 1, map[string]*string{"max.message.bytes": &small}, "OrderCreated"); err != nil {
		c.t.Fatal(err)
	}
	return func() {
		c.t.Helper()
		if _, err := admin.AlterTopicConfigs(c.t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &large}}, "OrderCreated"); err != nil {
			c.t.Fatal(err)
		}
	}
}

// readPublished are the events of an aggregate in the topics, by broker time, and by
// sequence within a millisecond of it.
func (c *cluster) readPublished(aggregate string, n int) (out []outbox.Record) {
	c.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.kafkaAddr), kgo.ConsumeTopics(topics...))
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), harness.Patience)
	defer cancel()
	var records []*kgo.Record
	for len(records) < n && ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if string(r.Key) == aggregate {
				records = append(records, r)
			}
		})
	}
	at := make(map[int64]time.Time)
	for _, r := range records {
		e, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
		if err != nil {
			c.t.Fatal(err)
		}
		at[e.Sequence] = r.Timestamp
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b outbox.Record) int {
		return cmp.Or(at[a.Sequence].Compare(at[b.Sequence]), cmp.Compare(a.Sequence, b.Sequence))
	})
	return out
}

// An order is too large for its topic. An operator edits the event: it is
// published under a new id, in its place, before the events blocked by it; the
// original stays in the dead letters, and outbox verify finds nothing missing.
func TestDeadLetters_EditedAndPublishedInPlace(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "")
	c.limitRecords()
	c.readHeaders("OrderCreated", c.order(1))
	refused := c.order(60)
	c.post("/v1/orders/"+refused+"/cancel", map[string]string{"reason": "too much"})
	c.readyWhen("ready with two dead letters", func(r *ready) bool {
		return r.Ready && r.DeadLetters == 2 && r.BlockedAggregates == 1 && r.InFlight == 0
	})
	var list []deadLetter
	c.command(0, &list, "dlq", "list", "--aggregate-id", refused, "--status", "suspended")
	if len(list) != 1 {
		t.Fatalf("dlq list = %+v, want the order", list)
	}
	id, dir := list[0].EventID, t.TempDir()
	payload := filepath.Join(dir, "payload")
	for name, text := range map[string]string{payload: `{"mended":true}`, filepath.Join(dir, "OrderCreated.json"): `{"type":"object","required":["mended"]}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var edited struct {
		ID string `json:"new_event_id"`
	}
	c.command(0, &edited, "dlq", "edit", id, "--payload-file", payload, "--dlq-schemas", dir, "--header", "mended=by hand", "--yes", "--reason", "a test")
	c.readyWhen("without dead letters", func(r *ready) bool { return r.Ready && r.DeadLetters == 0 && r.BlockedAggregates == 0 })
	got := c.readPublished(refused, 2)
	if len(got) != 2 || got[0].ID.String() != edited.ID || got[0].OriginalID.String() != id || string(got[0].Payload) != `{"mended":true}` ||
		got[0].Headers["mended"] != "by hand" || got[0].Sequence != 1 || got[1].Sequence != 2 || !got[1].OriginalID.IsZero() {
		t.Errorf("the aggregate's events are %+v, want the edited one and then its cancellation", got)
	}
	var v verified
	if c.command(0, &v, "verify"); !v.OK || v.Rows != 3 || v.Published != 3 || v.Dead+v.Blocked != 0 {
		t.Errorf("verify = %+v, want all three published", v)
	}
	var shown struct {
		deadLetter
		Payload string `json:"payload_text"`
	}
	if c.command(0, &shown, "dlq", "get", edited.ID); shown.EventID != id || shown.Status != "resolved" || len(shown.Payload) < 3000 {
		t.Errorf("dlq get = %+v, want the original to the byte", shown)
	}
	c.relay.Stop()
}

// A command that replays dead letters is killed while it waits for the result
// of the first, which no relay publishes. Another command resumes its job: each
// dead letter is changed once, everything is published, and the report contains
// it.
func TestDeadLetters_JobIsResumedAfterAKill(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "")
	grow := c.limitRecords()
	const n = 24
	for range n {
		c.order(60)
	}
	c.readyWhen("ready with all of them dead", func(r *ready) bool { return r.Ready && r.DeadLetters == n && r.InFlight == 0 })
	c.relay.Stop()
	grow()
	replay := harness.Start(t, "replay", "dlq", "replay", "--error-class", "record_too_large", "--yes", "--reason", "a test", "--force", "--canary", "--wait", "1h",
		"--scylla-hosts", c.cqlAddr)
	type job struct {
		ID       string `json:"id"`
		State    string `json:"state"`
		Progress struct {
			Total, Done, Changed, Replayed, Waiting int
		} `json:"progress"`
	}
	var jobs []job
	harness.Until(t, "a job that has begun", func() bool {
		c.command(0, &jobs, "dlq", "jobs", "list")
		return len(jobs) == 1 && jobs[0].Progress.Changed > 0
	})
	replay.Kill()
	c.command(0, &jobs, "dlq", "jobs", "list")
	if len(jobs) != 1 || jobs[0].State != "running" || jobs[0].Progress.Changed != 1 {
		t.Fatalf("after the kill the job is %+v, want it at its first dead letter", jobs)
	}
	c.relay.Restart()
	var end job
	c.command(0, &end, "dlq", "jobs", "resume", jobs[0].ID, "--yes", "--reason", "a test")
	if end.State != "done" || end.Progress.Total != n || end.Progress.Changed != n || end.Progress.Replayed != n || end.Progress.Waiting != 0 {
		t.Errorf("the report is %+v, want %d dead letters replayed", end, n)
	}
	var all []struct {
		EventID string `json:"event_id"`
	}
	if c.command(0, &all, "dlq", "list", "--status", "resolved"); len(all) != n {
		t.Errorf("%d dead letters are resolved, want %d", len(all), n)
	}
	for _, l := range all {
		var shown struct {
			History []struct {
				Action string `json:"action"`
				Job    string `json:"job"`
			} `json:"history"`
		}
		c.command(0, &shown, "dlq", "get", l.EventID)
		asked := 0
		for _, h := range shown.History {
			if h.Action == "replay" && h.Job == end.ID {
				asked++
			}
		}
		if asked != 1 {
			t.Errorf("dead letter %s was replayed %d times by the job: %+v", l.EventID, asked, shown.History)
		}
	}
	var v verified
	if c.command(0, &v, "verify"); !v.OK || v.Published != n {
		t.Errorf("verify = %+v, want %d published", v, n)
	}
	if r := harness.NewAccount(t, c.cqlAddr, c.kafkaAddr, topics...).Wait(); !r.OK() || r.Duplicates != 0 || r.Events != n {
		t.Errorf("%s, want %d events, each once", fmt.Sprint(r), n)
	}
	c.relay.Stop()
}
