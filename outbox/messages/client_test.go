package messages

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/api"
	"github.com/scylla-outbox/scylla-outbox/outbox/internal/rest/resttest"
)

func TestClient_MessageRequests(t *testing.T) {
	t.Parallel()
	s := &resttest.Transport{Answer: func(_ int, r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodDelete {
			return resttest.Respond(204, "")
		}
		return resttest.Respond(202, `{}`)
	}}
	c := &Client{URL: "http://outbox", HTTP: &http.Client{Transport: s}}
	at := time.Date(2027, 1, 31, 8, 0, 0, 0, time.UTC)
	text, priority, receive := "hi", 7, 5
	for _, f := range []func() error{
		func() error {
			_, err := c.Post(t.Context(), NewMessage{Topic: "t", Key: "k", Payload: json.RawMessage(`{"n":1}`), Delay: 90 * time.Second}, api.WithKey("r-42"))
			return err
		},
		func() error {
			_, err := c.Post(t.Context(), NewMessage{Topic: "t", PayloadText: &text, DeliverAt: &at, Priority: &priority, MaxReceive: &receive, Headers: map[string]string{"a": "b"}})
			return err
		},
		func() error {
			_, err := c.PostBatch(t.Context(), []NewMessage{{Topic: "t", PayloadBase64: []byte{1}}, {Topic: "u", Tombstone: true}})
			return err
		},
		func() error { _, err := c.Get(t.Context(), "i d"); return err },
		func() error { return c.Cancel(t.Context(), "x") },
		func() error { _, err := c.DeliverNow(t.Context(), "x"); return err },
		func() error { _, err := c.Content(t.Context(), "x"); return err },
		func() error {
			_, err := c.Scheduled(t.Context(), Query{Topic: "a&b", Key: "k", Since: at, Until: at, Limit: 3, Cursor: "z"})
			return err
		},
		func() error { _, err := c.Scheduled(t.Context(), Query{}); return err },
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for i, r := range s.Seen {
		got = append(got, r.Method+" "+r.URL.RequestURI()+" "+s.Bodies[i])
	}
	want := []string{
		`POST /v1/messages {"topic":"t","key":"k","payload":{"n":1},"delay":"1m30s"}`,
		`POST /v1/messages {"topic":"t","payload_text":"hi","headers":{"a":"b"},"deliver_at":"2027-01-31T08:00:00Z","priority":7,"max_receive":5}`,
		`POST /v1/messages/batch {"messages":[{"topic":"t","payload_base64":"AQ=="},{"topic":"u","tombstone":true}]}`,
		`GET /v1/messages/i%20d `, `DELETE /v1/messages/x `,
		`POST /v1/messages/x/deliver-now {}`, `GET /v1/messages/x/content `,
		`GET /v1/messages?cursor=z&key=k&limit=3&since=2027-01-31T08%3A00%3A00Z&state=scheduled&topic=a%26b&until=2027-01-31T08%3A00%3A00Z `,
		`GET /v1/messages?state=scheduled `,
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
	if k := s.Seen[0].Header.Get("Idempotency-Key"); k != "r-42" {
		t.Errorf("the first request has the key %q", k)
	}
	for _, i := range []int{1, 2} {
		if s.Seen[i].Header.Get("Idempotency-Key") == "" {
			t.Errorf("request %d has no key", i+1)
		}
	}
}

// A batch is retried unchanged while one of its messages may still be accepted.
func TestClient_RepeatsABatchUntilAllIsSettled(t *testing.T) {
	t.Parallel()
	const (
		stored  = `{"index":0,"message":{"id":"a","state":"queued"}}`
		unknown = `{"index":1,"problem":{"status":503,"type":"urn:scylla-outbox:problem:outcome-unknown"}}`
		invalid = `{"index":1,"problem":{"status":422,"type":"` + string(api.ErrInvalid) + `"}}`
	)
	synctest.Test(t, func(t *testing.T) {
		s := &resttest.Transport{Answer: func(n int, _ *http.Request) (*http.Response, error) {
			switch n {
			case 1:
				return nil, io.ErrUnexpectedEOF
			case 2, 3:
				return resttest.Respond(207, `{"results":[`+stored+`,`+unknown+`]}`)
			}
			return resttest.Respond(207, `{"results":[`+stored+`,`+invalid+`]}`)
		}}
		c := &Client{HTTP: &http.Client{Transport: s}}
		r, err := c.PostBatch(t.Context(), make([]NewMessage, 2))
		if err != nil || len(s.Seen) != 4 || len(r) != 2 || r[0].Message == nil || r[0].Message.ID != "a" || r[1].Problem == nil || r[1].Problem.Status != 422 {
			t.Fatalf("PostBatch() = %+v, %v after %d requests, want 4", r, err, len(s.Seen))
		}
		for i, q := range s.Seen {
			if q.Header.Get("Idempotency-Key") != s.Seen[0].Header.Get("Idempotency-Key") || s.Bodies[i] != s.Bodies[0] {
				t.Errorf("request %d is another one", i+1)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &resttest.Transport{Answer: func(int, *http.Request) (*http.Response, error) {
			return resttest.Respond(207, `{"results":[`+stored+`,`+unknown+`]}`)
		}}
		c := &Client{HTTP: &http.Client{Transport: s}, MaxAttempts: 3}
		if r, err := c.PostBatch(t.Context(), make([]NewMessage, 2)); err != nil || len(s.Seen) != 3 || len(r) != 2 || r[1].Problem == nil {
			t.Errorf("PostBatch() = %+v, %v after %d requests, want the results of the third", r, err, len(s.Seen))
		}
	})
}

func TestClient_TakingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &resttest.Transport{Answer: func(n int, _ *http.Request) (*http.Response, error) {
			switch n {
			case 1:
				return resttest.Respond(503, `{"type":"urn:scylla-outbox:problem:outcome-unknown","outcome_unknown":true}`, "Retry-After", "3")
			case 2:
				return resttest.Respond(204, "")
			}
			return resttest.Respond(409, `{"type":"`+string(ErrTooLate)+`","state":"completed"}`)
		}}
		c := &Client{HTTP: &http.Client{Transport: s}}
		began := time.Now()
		if err := c.Cancel(t.Context(), "x"); err != nil || len(s.Seen) != 2 || time.Since(began) < 3*time.Second {
			t.Errorf("Cancel() = %v after %d requests and %s", err, len(s.Seen), time.Since(began))
		}
		if err := c.Cancel(t.Context(), "x"); !errors.Is(err, ErrTooLate) || StateOf(err) != Completed || len(s.Seen) != 3 {
			t.Errorf("Cancel() = %v after %d requests", err, len(s.Seen)-2)
		}
	})
}
