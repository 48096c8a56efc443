package e2e

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// The process is killed while a scheduled message waits: the message is in its
// topic after its due time, once, with its key, and event streams contain it.
func TestMessages_WaitThroughAKillAndAreSeen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "orders.jsonl")
	write(t, file, order("1"))
	addrs := harness.FreeAddrs(t, 5)
	p := harness.Start(t, "dev", "run", "--data-dir", filepath.Join(dir, "data"), "--load", file,
		"--cql-addr", addrs[0], "--kafka-addr", addrs[1], "--orders-addr", addrs[2], "--admin-addr", addrs[3], "--messages-addr", addrs[4], "--subscriptions-addr", "127.0.0.1:0", "--ops-addr", "off")
	harness.Reachable(t, addrs[4])
	base := "http://" + addrs[4]

	var posted struct {
		Self      string    `json:"self"`
		State     string    `json:"state"`
		DeliverAt time.Time `json:"deliver_at"`
	}
	harness.Until(t, "an answer to POST /v1/messages", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/messages", strings.NewReader(`{"topic":"reminders","key":"customer-42","payload":{"n":1},"delay":"5s"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", "reminder")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusServiceUnavailable {
			return false
		}
		if err := json.NewDecoder(resp.Body).Decode(&posted); err != nil || resp.StatusCode != 202 || resp.Header.Get("Idempotency-Replayed") == "" && posted.State != "scheduled" {
			t.Fatalf("POST = %d %+v, %v", resp.StatusCode, posted, err)
		}
		return true
	})
	p.Kill()
	p.Restart()
	harness.Reachable(t, addrs[4])

	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	var message struct {
		State  string `json:"state"`
		Record *struct {
			Partition int   `json:"partition"`
			Offset    int64 `json:"offset"`
		} `json:"record"`
	}
	for message.State != "completed" {
		if ctx.Err() != nil {
			t.Fatalf("the message is %q\n%s", message.State, p.Log())
		}
		time.Sleep(20 * time.Millisecond)
		r, err := http.Get(base + posted.Self)
		if err != nil {
			continue // not up yet
		}
		err = json.NewDecoder(r.Body).Decode(&message)
		if _ = r.Body.Close(); err != nil || r.StatusCode != 200 && r.StatusCode != 503 {
			t.Fatalf("GET = %d, %v", r.StatusCode, err)
		}
	}
	if message.Record == nil || message.Record.Offset != 0 {
		t.Errorf("it is at %+v, want the first of its partition", message.Record)
	}
	out := harness.Must(t, "tail", "--kafka-seeds", addrs[1], "-o", "json", "--from-start", "--limit", "1", "reminders")
	var record struct {
		Key  string    `json:"key"`
		Time time.Time `json:"timestamp"`
	}
	if err := json.Unmarshal([]byte(out), &record); err != nil || record.Key != "customer-42" || record.Time.Before(posted.DeliverAt) {
		t.Errorf("the topic contains %s (%v), want one record with the key, not before %s", out, err, posted.DeliverAt)
	}
	// A client that was disconnected before it was published resumes and receives
	// it.
	position := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"reminders":{"%d":0}}`, message.Record.Partition))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/events/stream?topics=reminders&cursor="+position, nil)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := http.DefaultClient.Do(req)
	if err != nil || stream.StatusCode != 200 {
		t.Fatalf("watch = %v, %v", stream, err)
	}
	defer func() { _ = stream.Body.Close() }()
	in := bufio.NewScanner(stream.Body)
	for in.Scan() {
		if data, ok := strings.CutPrefix(in.Text(), "data: {\"topic\""); ok {
			if !strings.Contains(data, `"key":"customer-42"`) || !strings.Contains(data, `"data":{"n":1}`) {
				t.Errorf("watched: %s", data)
			}
			return
		}
	}
	t.Errorf("the stream ended without the message: %v", in.Err())
}
