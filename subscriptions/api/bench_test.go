package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// instant is a service without any cost.
type instant struct {
	subscriptions.Service
	messages []subscriptions.Message
	results  []subscriptions.Result
}

func (s instant) Receive(context.Context, string, subscriptions.Receive) ([]subscriptions.Message, error) {
	return s.messages, nil
}

func (s instant) Settle(context.Context, string, []subscriptions.Settle) ([]subscriptions.Result, error) {
	return s.results, nil
}

// BenchmarkReceiveAck measures the cost of the API for a batch of 100 messages that are
// received and acknowledged, without a network.
func BenchmarkReceiveAck(b *testing.B) {
	const batch = 100
	s := instant{results: make([]subscriptions.Result, batch)}
	receipts := make([]string, batch)
	for i := range batch {
		receipts[i] = strings.Repeat("r", 110) + fmt.Sprint(i)
		s.results[i].Code = subscriptions.CodeOK
		s.messages = append(s.messages, subscriptions.Message{
			Receipt: receipts[i], Attempt: 1, MaxReceive: 3, LeaseUntil: time.Now(),
			Event: kafkarecord.Event{Topic: "OrderCreated", Offset: int64(i), At: time.Now(), Key: "01a1fdab-a873-7804-8159-8f6ba00d992c", Data: json.RawMessage(`{"id":"` + strings.Repeat("x", 300) + `"}`)},
		})
	}
	server, err := New(Config{Service: s})
	if err != nil {
		b.Fatal(err)
	}
	ack, err := json.Marshal(map[string]any{"receipts": receipts})
	if err != nil {
		b.Fatal(err)
	}
	post := func(operation, body string) {
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/subscriptions/orders/"+operation, strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		server.Handler().ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatalf("%s = %d %s", operation, w.Code, w.Body)
		}
	}
	for b.Loop() {
		post("receive", `{"max":100}`)
		post("ack", string(ack))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/message")
}
