package subscriptions

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/api"
	"github.com/scylla-outbox/scylla-outbox/outbox/internal/rest/resttest"
)

func TestClient_SubscriptionRequests(t *testing.T) {
	t.Parallel()
	s := &resttest.Transport{Answer: func(int, *http.Request) (*http.Response, error) {
		return resttest.Respond(200, `{"messages":[{"receipt":"r","data_text":"x"}],"results":[{"code":"ok"}]}`)
	}}
	c := &Client{URL: "http://outbox", HTTP: &http.Client{Transport: s}}
	for _, f := range []func() error{
		func() error { _, err := c.Receive(t.Context(), "s", ReceiveOptions{}); return err },
		func() error {
			got, err := c.Receive(t.Context(), "a/b", ReceiveOptions{Max: 5, Wait: time.Second, AutoAck: true, VisibilityTimeout: time.Minute, Consumer: "mailer-1"})
			if len(got) != 1 || string(got[0].Payload()) != "x" {
				t.Errorf("Receive() = %+v", got)
			}
			return err
		},
		func() error { _, err := c.Ack(t.Context(), "s", "r1", "r2"); return err },
		func() error { _, err := c.Release(t.Context(), "s", "r1"); return err },
		func() error {
			_, err := c.Nack(t.Context(), "s", Settling{Receipt: "r1"}, Settling{Receipt: "r2", Delay: time.Second, Reason: "x"})
			return err
		},
		func() error {
			_, err := c.Extend(t.Context(), "s", Settling{Receipt: "r1", Delay: time.Minute})
			return err
		},
		func() error {
			_, err := c.Reject(t.Context(), "s", Settling{Receipt: "r1", Reason: "x"})
			return err
		},
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for i, r := range s.Seen {
		got = append(got, r.URL.EscapedPath()+" "+s.Bodies[i])
	}
	want := []string{
		`/v1/subscriptions/s/receive {}`,
		`/v1/subscriptions/a%2Fb/receive {"max":5,"wait":"1s","auto_ack":true,"visibility_timeout":"1m0s","consumer":"mailer-1"}`,
		`/v1/subscriptions/s/ack {"receipts":["r1","r2"]}`,
		`/v1/subscriptions/s/release {"receipts":["r1"]}`,
		`/v1/subscriptions/s/nack {"items":[{"receipt":"r1"},{"receipt":"r2","delay":"1s","reason":"x"}]}`,
		`/v1/subscriptions/s/extend {"items":[{"receipt":"r1","delay":"1m0s"}]}`,
		`/v1/subscriptions/s/reject {"items":[{"receipt":"r1","reason":"x"}]}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
}

// Results that may change are requested again; others are the result, with an error.
func TestClient_RepeatsUnknownResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &resttest.Transport{Answer: func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return resttest.Respond(503, `{"type":"urn:scylla-outbox:problem:outcome-unknown","results":[{"code":"unknown"},{"code":"lease_expired"}]}`)
			}
			return resttest.Respond(409, `{"type":"`+string(ErrLeaseExpired)+`","results":[{"code":"ok"},{"code":"lease_expired","error":"gone"}]}`)
		}}
		c := &Client{URL: "http://outbox", HTTP: &http.Client{Transport: s}}
		r, err := c.Ack(t.Context(), "s", "a", "b")
		var p *api.Problem
		if !errors.As(err, &p) || p.Status != 409 || len(s.Seen) != 2 || len(r) != 2 || r[0].Code != ResultOK || r[1].Code != ResultLeaseExpired {
			t.Errorf("Ack() = %+v, %v after %d requests", r, err, len(s.Seen))
		}
	})
}

// The payload of a message that is decoded by its schema is its bytes, beside the data.
func TestDelivery_Payload(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`{"data":{"n":1},"data_base64":"AAE="}`: "\x00\x01", `{"data":{"n":1}}`: `{"n":1}`, `{"data_text":"x"}`: "x", `{}`: ""} {
		var d Delivery
		if err := json.Unmarshal([]byte(text), &d); err != nil || string(d.Payload()) != want {
			t.Errorf("%s: payload %q, %v, want %q", text, d.Payload(), err, want)
		}
	}
}

// A change of a subscription that was read before is conditional on its version.
func TestClient_SubscriptionVersions(t *testing.T) {
	t.Parallel()
	s := &resttest.Transport{Answer: func(int, *http.Request) (*http.Response, error) { return resttest.Respond(200, `{}`) }}
	c := &Client{URL: "http://outbox", HTTP: &http.Client{Transport: s}}
	for _, version := range []int64{0, 7} {
		if _, err := c.Put(t.Context(), Subscription{Name: "s", Topics: []string{"a"}, Version: version}); err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(t.Context(), "s", version); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, r := range s.Seen {
		got = append(got, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("If-Match"))
	}
	want := []string{
		"PUT /v1/subscriptions/s ", "DELETE /v1/subscriptions/s ",
		`PUT /v1/subscriptions/s "7"`, `DELETE /v1/subscriptions/s "7"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
}
