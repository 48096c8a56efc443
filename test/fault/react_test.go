//go:build fault

package fault

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/harness"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// Two processes of outbox react share a rule and are killed alternately while
// they post to a webhook: each event is posted, few twice, and every delivery
// has the state delivered.
func TestFault_ReactKilled(t *testing.T) {
	t.Parallel()
	const secret, events, wanted = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", 3000, 4
	keys, err := notify.ParseKeys(secret)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	killed := sync.NewCond(&mu)
	posted, kills := make(map[string]int), 0
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // it was killed while it wrote
		}
		var m struct {
			Data struct {
				ID string `json:"event_id"`
			}
		}
		if err := notify.Verify(r.Header, body, keys); err != nil {
			t.Error(err)
		} else if err := json.Unmarshal(body, &m); err != nil {
			t.Error(err)
		}
		mu.Lock()
		posted[m.Data.ID]++
		for kills < wanted && len(posted) > (kills+1)*events/5 { // it is not over before all kills
			killed.Wait()
		}
		mu.Unlock()
		time.Sleep(5 * time.Millisecond) // posted, but not yet acknowledged
	}))
	died := func() {
		mu.Lock()
		kills++
		mu.Unlock()
		killed.Broadcast()
	}
	t.Cleanup(func() {
		for range wanted { // so that no response waits for ever
			died()
		}
		receiver.Close()
	})
	addrs := harness.FreeAddrs(t, 4)
	harness.Start(t, "engines", "engines", "--data-dir", t.TempDir(), "--cql-addr", addrs[0], "--kafka-addr", addrs[1], "--tokens", "4")
	harness.Reachable(t, addrs[0])
	harness.Reachable(t, addrs[1])
	harness.Must(t, "schema", "migrate", "--scylla-hosts", addrs[0])

	client, err := kgo.NewClient(kgo.SeedBrokers(addrs[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 6, 1, nil, "things"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	config := "react:\n  targets: [\"hook=webhook+" + receiver.URL + "\"]\n  webhook_secrets: [" + secret + "]\n" +
		"  rules:\n    - {name: all, topics: [things], to: hook, from: start, backoff: 200ms, attempts: 50, timeout: 5m}\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var two []*harness.Process
	for i := range 2 {
		two = append(two, harness.Start(t, "react"+strconv.Itoa(i), "react", "--config", file, "--scylla-hosts", addrs[0], "--kafka-seeds", addrs[1], "--admin-addr", addrs[2+i]))
	}
	var records []*kgo.Record
	ids := make(map[string]bool)
	for i := range events {
		e := outbox.Event{ID: outbox.NewID(), AggregateText: "t-" + strconv.Itoa(i%100), Sequence: 1, AggregateType: "thing", Type: "ThingHappened", Payload: []byte("{}"), CreatedAt: time.Now()}
		ids[e.ID.String()] = true
		records = append(records, &kgo.Record{Topic: "things", Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")})
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	count := func() (seen, again int) {
		mu.Lock()
		defer mu.Unlock()
		for id, n := range posted {
			if !ids[id] {
				t.Errorf("an unpublished event %q was posted", id)
			}
			seen++
			again += n - 1
		}
		return seen, again
	}
	rnd := seeds.Rand(t)
	for n := range wanted {
		harness.Until(t, "the next events", func() bool { seen, _ := count(); return seen > n*events/5 })
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
		two[n%2].Kill()
		died()
		two[n%2].Restart()
	}
	harness.Until(t, "all events", func() bool { seen, _ := count(); return seen == events })
	// An event that a process had posted when it was killed is posted again by the
	// other one.
	harness.Until(t, "all deliveries to be delivered", func() bool {
		var views []struct{ State string }
		if err := json.Unmarshal([]byte(harness.Must(t, "deliveries", "list", "--limit", "0", "-o", "json", "--scylla-hosts", addrs[0])), &views); err != nil {
			t.Fatal(err)
		}
		delivered := 0
		for _, v := range views {
			switch v.State {
			case "delivered":
				delivered++
			case "pending":
			default:
				t.Fatalf("a delivery is %s", v.State)
			}
		}
		return delivered == events && len(views) == events
	})
	for _, p := range two {
		p.Stop()
	}
	_, again := count()
	t.Logf("%d kills, %d of %d events were posted again", kills, again, events)
	if again > kills*4*10 {
		t.Errorf("%d kills, %d events again; want few", kills, again)
	}
}
