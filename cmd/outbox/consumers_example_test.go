package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
)

// effects are the rows that the example consumers store.
type effects struct {
	Applied map[string][]int64
	Numbers map[string]int
	Mails   map[string]string
}

// The example consumers process orders and cancellations exactly once, in Go and in Python.
func TestExamples_Consumers(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	api, _ := b.startSubscriptions(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "consumers")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../examples/consumers").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	languages := map[string][]string{"go": {program}}
	if python, err := exec.LookPath("python3"); err == nil {
		languages["python"] = []string{python, "../../examples/consumers/consumers.py"}
	}
	if _, err := kadm.NewClient(b.client).CreateTopics(t.Context(), 3, 1, nil, "OrderCreated", "OrderCancelled"); err != nil {
		t.Fatal(err)
	}
	c := &client.Client{URL: api}
	want := map[string]effects{}
	for _, consumer := range []string{"inventory", "email", "analytics"} {
		want[consumer] = effects{map[string][]int64{}, map[string]int{}, map[string]string{}}
		for language := range languages {
			if _, err := c.Put(t.Context(), client.Subscription{Name: consumer + "-" + language, Topics: []string{"Order*"}, Start: "earliest"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	const orders = 60
	for i := range orders {
		country, sku, id := fmt.Sprint("Country ", i%4), fmt.Sprint("sku-", i%5), fmt.Sprint("order-", i)
		event := func(typ string, sequence int64) outbox.Event {
			return outbox.Event{
				ID: outbox.NewID(), AggregateID: outbox.IDFromText(id), Sequence: sequence, AggregateType: "order", Type: typ, CreatedAt: time.Now(),
				Payload: fmt.Appendf(nil, `{"country":%q,"currency":"EUR","total":"%d.00","lines":[{"sku":%q,"quantity":%d}]}`, country, i, sku, i),
			}
		}
		for consumer := range want {
			want[consumer].Applied[id] = []int64{1}
		}
		events := []outbox.Event{event("OrderCreated", 1)}
		want["inventory"].Numbers[sku] += i
		want["analytics"].Numbers[country]++
		want["email"].Mails[events[0].ID.String()] = fmt.Sprintf("Your order %s of %d.00 EUR was received.", id, i)
		for _, e := range events {
			// The last copy is a duplicate in the topic.
			for range 1 + i%2 {
				r := &kgo.Record{Topic: e.Type, Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}
				if err := b.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	consume := func() {
		t.Helper()
		for consumer := range want {
			for language, command := range languages {
				args := append(command[1:len(command):len(command)], "--api", api, "--consumer", consumer, "--subscription", consumer+"-"+language,
					"--state", filepath.Join(dir, consumer+"-"+language), "--until-empty")
				if out, err := exec.CommandContext(t.Context(), command[0], args...).CombinedOutput(); err != nil {
					t.Fatalf("%s in %s: %v\n%s", consumer, language, err, out)
				}
			}
		}
	}
	read := func(consumer, language string) (got effects) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, consumer+"-"+language))
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	consume()
	for i := 0; i < orders; i += 3 {
		id, sku, country := fmt.Sprint("order-", i), fmt.Sprint("sku-", i%5), fmt.Sprint("Country ", i%4)
		e := outbox.Event{
			ID: outbox.NewID(), AggregateID: outbox.IDFromText(id), Sequence: 2, AggregateType: "order", Type: "OrderCancelled", CreatedAt: time.Now(),
			Payload: fmt.Appendf(nil, `{"country":%q,"lines":[{"sku":%q,"quantity":%d}]}`, country, sku, i),
		}
		want["inventory"].Numbers[sku] -= i
		want["analytics"].Numbers[country]--
		want["email"].Mails[e.ID.String()] = fmt.Sprintf("Your order %s was cancelled.", id)
		for consumer := range want {
			want[consumer].Applied[id] = []int64{1, 2}
		}
		r := &kgo.Record{Topic: e.Type, Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}
		if err := b.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	consume()
	for consumer := range want {
		for language := range languages {
			if got := read(consumer, language); !reflect.DeepEqual(got, want[consumer]) {
				t.Errorf("%s in %s: %+v\nwant %+v", consumer, language, got, want[consumer])
			}
			if st, err := c.Status(t.Context(), consumer+"-"+language); err != nil || st.Lag != 0 || st.DeadLetters != 0 {
				t.Errorf("%s in %s: %+v, %v, want nothing left", consumer, language, st, err)
			}
		}
	}
}
