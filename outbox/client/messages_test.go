package client

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestClient_MessageRequests(t *testing.T) {
	t.Parallel()
	s := &transport{answer: func(_ int, r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodDelete {
			return respond(204, "")
		}
		return respond(202, `{}`)
	}}
	c := &Client{URL: "http://outbox", HTTP: &http.Client{Transport: s}}
	at := time.Date(2027, 1, 31, 8, 0, 0, 0, time.UTC)
	text, priority, receive := "hi", 7, 5
	for _, f := range []func() error{
		func() error {
			_, err := c.PostMessage(t.Context(), NewMessage{Topic: "t", Key: "k", Payload: json.RawMessage(`{"n":1}`), Delay: 90 * time.Second}, WithKey("r-42"))
			return err
		},
		func() error {
			_, err := c.PostMessage(t.Context(), NewMessage{Topic: "t", PayloadText: &text, DeliverAt: &at, Priority: &priority, MaxReceive: &receive, Headers: map[string]string{"a": "b"}})
			return err
		},
		func() error {
			_, err := c.PostMessages(t.Context(), []NewMessage{{Topic: "t", PayloadBase64: []byte{1}}, {Topic: "u", Tombstone: true}})
			return err
		},
		func() error { _, err := c.GetMessage(t.Context(), "i d"); return err },
		func() error { return c.CancelMessage(t.Context(), "x") },
		func() error { _, err := c.DeliverMessageNow(t.Context(), "x"); return err },
		func() error { _, err := c.MessageContent(t.Context(), "x"); return err },
		func() error {
			_, err := c.ScheduledMessages(t.Context(), ScheduledQuery{Topic: "a&b", Key: "k", Since: at, Until: at, Limit: 3, Cursor: "z"})
			return err
		},
		func() error { _, err := c.ScheduledMessages(t.Context(), ScheduledQuery{}); return err },
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for i, r := range s.seen {
		got = append(got, r.Method+" "+r.URL.RequestURI()+" "+s.bodies[i])
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
	if k := s.seen[0].Header.Get("Idempotency-Key"); k != "r-42" {
		t.Errorf("the first request has the key %q", k)
	}
	for _, i := range []int{1, 2} {
		if s.seen[i].Header.Get("Idempotency-Key") == "" {
			t.Errorf("request %d has no key", i+1)
		}
	}
}

// A batch is retried unchanged while one of its messages may still be accepted.
func TestClient_RepeatsABatchUntilAllIsSettled(t *testing.T) {
	t.Parallel()
	const (
		stored  = `{"index":0,"message":{"id":"a","state":"queued"}}`
		unknown = `{"index":1,"problem":{"status":503,"type":"` + ProblemUnknown + `"}}`
		invalid = `{"index":1,"problem":{"status":422,"type":"` + ProblemInvalid + `"}}`
	)
	synctest.Test(t, func(t *testing.T) {
		s := &transport{answer: func(n int, _ *http.Request) (*http.Response, error) {
			switch n {
			case 1:
				return nil, io.ErrUnexpectedEOF
			case 2, 3:
				return respond(207, `{"results":[`+stored+`,`+unknown+`]}`)
			}
			return respond(207, `{"results":[`+stored+`,`+invalid+`]}`)
		}}
		c := &Client{HTTP: &http.Client{Transport: s}}
		r, err := c.PostMessages(t.Context(), make([]NewMessage, 2))
		if err != nil || len(s.seen) != 4 || len(r) != 2 || r[0].Message == nil || r[0].Message.ID != "a" || r[1].Problem == nil || r[1].Problem.Status != 422 {
			t.Fatalf("PostMessages() = %+v, %v after %d requests, want 4", r, err, len(s.seen))
		}
		for i, q := range s.seen {
			if q.Header.Get("Idempotency-Key") != s.seen[0].Header.Get("Idempotency-Key") || s.bodies[i] != s.bodies[0] {
				t.Errorf("request %d is another one", i+1)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &transport{answer: func(int, *http.Request) (*http.Response, error) {
			return respond(207, `{"results":[`+stored+`,`+unknown+`]}`)
		}}
		c := &Client{HTTP: &http.Client{Transport: s}, MaxAttempts: 3}
		if r, err := c.PostMessages(t.Context(), make([]NewMessage, 2)); err != nil || len(s.seen) != 3 || len(r) != 2 || r[1].Problem == nil {
			t.Errorf("PostMessages() = %+v, %v after %d requests, want the results of the third", r, err, len(s.seen))
		}
	})
}

func TestClient_TakingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &transport{answer: func(n int, _ *http.Request) (*http.Response, error) {
			switch n {
			case 1:
				return respond(503, `{"type":"`+ProblemUnknown+`","outcome_unknown":true}`, "Retry-After", "3")
			case 2:
				return respond(204, "")
			}
			return respond(409, `{"type":"`+ProblemTooLate+`","message_id":"x"}`)
		}}
		c := &Client{HTTP: &http.Client{Transport: s}}
		began := time.Now()
		if err := c.CancelMessage(t.Context(), "x"); err != nil || len(s.seen) != 2 || time.Since(began) < 3*time.Second {
			t.Errorf("CancelMessage() = %v after %d requests and %s", err, len(s.seen), time.Since(began))
		}
		var p *Problem
		if err := c.CancelMessage(t.Context(), "x"); !errors.As(err, &p) || p.Type != ProblemTooLate || p.MessageID != "x" || len(s.seen) != 3 {
			t.Errorf("CancelMessage() = %v after %d requests", err, len(s.seen)-2)
		}
	})
}
