// Package test tests the service as a process. It is a module of its own, so that the service
// does not depend on the embedded engines.
package test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/testkit"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Several clients deposit into the same accounts, while the service and its relay are killed and
// the database loses answers. Every change is published once and in order, and none is lost.
func TestService_LosesNoChange(t *testing.T) {
	k := testkit.Start(t, testkit.Options{Schema: []string{"../schema.cql"}, Relay: "../relay.yaml"})
	addr := testkit.FreeAddr(t)
	service := k.Run("service", testkit.Build(t, ".."), "--scylla", k.CQL, "--addr", addr)
	lost := k.FaultDatabase(testkit.Fault{Effect: testkit.LoseAnswer, On: "bank.account_events", Chance: 0.1})

	c := &clients{t: t, url: "http://" + addr + "/accounts/"}
	k.KillDuring(6, c.deposit, service, k.Relay)
	events := k.NothingLost()

	last, cents := make(map[string]account), int64(0)
	for _, record := range k.Records("accounts") {
		event, err := outbox.FromRecord(record.Key, record.Value, record.Headers)
		if err != nil {
			t.Fatal(err)
		}
		var a account
		if err := json.Unmarshal(event.Payload, &a); err != nil {
			t.Fatal(err)
		}
		id := event.AggregateID.String()
		if a.Version != last[id].Version+1 || a.Cents != a.Version { // one cent each
			t.Errorf("version %d of account %s has %d cents and follows version %d", a.Version, id, a.Cents, last[id].Version)
		}
		last[id] = a
	}
	for _, a := range last {
		cents += a.Cents
	}
	if cents < c.answered.Load() || cents > c.sent.Load() {
		t.Errorf("the accounts have %d cents; %d deposits of one were answered, %d sent", cents, c.answered.Load(), c.sent.Load())
	}
	if lost.Hits() == 0 {
		t.Error("no answer of the database was lost")
	}
	t.Logf("%d events; of %d deposits %d were answered; the accounts have %d cents", events, c.sent.Load(), c.answered.Load(), cents)
}

// account is the response of the service, and the payload of its events.
type account struct{ Cents, Version int64 }

// clients deposit into accounts.
type clients struct {
	t              *testing.T
	url            string
	sent, answered atomic.Int64 // deposits
}

// deposit lets four clients deposit one cent each into each account.
func (c *clients) deposit() {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, id := range []string{"ada", "bob", "cyd"} {
				if post(c.t, c.url+id+"/deposits", `{"cents":1}`, &c.sent).Version > 0 {
					c.answered.Add(1)
				}
			}
		})
	}
	all.Wait()
}

// post sends a request until the service answers it, and counts the requests: one whose answer
// was lost may have been applied.
func post(t *testing.T, url, body string, sent *atomic.Int64) (a account) {
	for end := time.Now().Add(testkit.Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		sent.Add(1)
		response, err := http.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			continue // it was killed
		}
		err = json.NewDecoder(response.Body).Decode(&a)
		_ = response.Body.Close()
		if err == nil && response.StatusCode == http.StatusOK {
			return a
		}
	}
	t.Errorf("POST %s has no answer", url)
	return account{}
}
