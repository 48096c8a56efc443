package bench

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A server that stalls for a second does not get less load, and all delayed calls count.
func TestOffer_CountsFromWhenACallWasToBeMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		o := Offer{Rate: 100, Duration: 10 * time.Second, Workers: 1, Do: func(_ context.Context, _ int, i int64) (Answer, int) {
			if i == 500 {
				time.Sleep(time.Second)
			}
			return Served, 3
		}}
		got := o.Run(t.Context())
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("took %s, want the ten seconds of its duration", d)
		}
		if got.Offered != 100 || got.Served.Count != 3000 || got.Done != 3000 {
			t.Errorf("offered %g/s, served %d of %d, want 100/s and 3000", got.Offered, got.Served.Count, got.Done)
		}
		// A hundred calls had to wait, half a second in the middle.
		if got.Intended.Max < 990 || got.Intended.P95 < 450 || got.Intended.P95 > 550 {
			t.Errorf("from when they were to be made: %+v", got.Intended)
		}
		if got.Sent.P99 > 1 {
			t.Errorf("from when they were made: %+v, want one call that is slow", got.Sent)
		}
	})
}

func TestOffer_ClassifiesAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := Offer{
			Rate: 10, Duration: 10 * time.Second, WarmUp: time.Second, Workers: 1, Patience: 100 * time.Millisecond,
			Do: func(_ context.Context, _ int, i int64) (Answer, int) {
				switch {
				case i < 10: // the warm-up
					return Failed, 0
				case i == 20:
					time.Sleep(time.Second) // callers that come in that second give up, except for the last two
				case i%10 == 1:
					return Refused, 0
				case i%10 == 2:
					return Unavailable, 0
				}
				return Served, 1
			},
		}
		got := o.Run(t.Context())
		if got.Failed != 0 || got.Unsent != .08 || got.Refused != .09 || got.Unavailable != .09 || got.Served.Count != 74 {
			t.Errorf("%+v, want 8 of 100 not sent, 9 and 9 refused, 74 served", got)
		}
	})
}

func TestOffer_WithoutARateAsFastAsAnswersCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := Offer{Duration: time.Second, Workers: 4, Do: func(context.Context, int, int64) (Answer, int) {
			time.Sleep(10 * time.Millisecond)
			return Served, 1
		}}
		if got := o.Run(t.Context()); got.Served.Count < 396 || got.Served.Count > 400 {
			t.Errorf("served %d, want 4 every 10 ms for a second", got.Served.Count)
		}
	})
}

// A patient worker makes no call within a second after a refusal, and its refusals count alone.
func TestOffer_PatientWorkersKeepToRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls [2]atomic.Int64
		o := Offer{Duration: 10 * time.Second, Workers: 2, Patient: 1, Do: func(_ context.Context, w int, _ int64) (Answer, int) {
			calls[w].Add(1)
			time.Sleep(time.Duration(1+w) * 10 * time.Millisecond)
			return Refused, 0
		}}
		got := o.Run(t.Context())
		if patient, other := calls[0].Load(), calls[1].Load(); patient != 10 || other != 500 {
			t.Errorf("%d calls of the patient worker and %d of the other, want 10 and 500", patient, other)
		}
		if got.PatientRefusal.Max != 10 || got.Refusal.Max != 20 || got.Refused != 1 {
			t.Errorf("refusals took %g ms for the patient worker and %g ms for the other, share %g", got.PatientRefusal.Max, got.Refusal.Max, got.Refused)
		}
	})
}

func TestCaller_PostsOverOneConnection(t *testing.T) {
	t.Parallel()
	connections := map[string]bool{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connections[r.RemoteAddr] = true
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("request %+v, %v", r, err)
		}
		switch {
		case r.URL.Path == "/full":
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"type":"urn:scylla-outbox:problem:overloaded"}`)
		case r.URL.Path == "/down":
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"type":"urn:scylla-outbox:problem:database-unavailable"}`)
		case r.URL.Path == "/last":
			w.Header().Set("Connection", "close")
		case r.Header.Get("X-Name") != "a" || string(body) != `{"n":1}`:
			w.WriteHeader(http.StatusBadRequest)
		default:
			_, _ = io.WriteString(w, strings.Repeat("long ", 10_000))
		}
	}))
	defer srv.Close()
	var received bytes.Buffer
	c := Caller{Addr: srv.Listener.Addr().String(), Timeout: 10 * time.Second, Body: &received}
	defer c.Close()
	for range 3 {
		if status, err := c.Post(t.Context(), "/", "X-Name: a\r\n", []byte(`{"n":1}`)); c.ClassifyAnswer(status, err) != Served || received.Len() != 50_000 {
			t.Fatalf("Post() = %d, %v", status, err)
		}
		if status, err := c.Post(t.Context(), "/full", "", nil); c.ClassifyAnswer(status, err) != Refused || status != 503 || received.Len() != 47 {
			t.Fatalf("Post() = %d, %v, want a refusal", status, err)
		}
		if status, err := c.Post(t.Context(), "/down", "", nil); c.ClassifyAnswer(status, err) != Unavailable {
			t.Fatalf("Post() = %d, %v, want no refusal because of overload", status, err)
		}
	}
	if len(connections) != 1 {
		t.Errorf("%d connections, want one", len(connections))
	}
	for range 2 {
		if status, err := c.Post(t.Context(), "/last", "", nil); status != 200 || err != nil {
			t.Errorf("Post() = %d, %v, want a new connection after one that was closed", status, err)
		}
	}
	srv.Close()
	if status, err := c.Post(t.Context(), "/", "", nil); c.ClassifyAnswer(status, err) != Failed {
		t.Errorf("Post() without a server = %d, %v", status, err)
	}
}
