package admin

import (
	"net/http"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// A repeated request with an Idempotency-Key, quoted or not, returns the job of the first.
func TestJobs_IdempotencyKey(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	const body = `{"action":"replay","filter":{"error_class":"record_too_large"}}`
	post := func(role access.Role, key, body string) answer {
		return b.ask(t, role, "POST", "/v1/jobs", body, "Idempotency-Key", key)
	}
	var first, again, other JobBody
	if a := post(access.Operator, "k-1", body).into(t, http.StatusAccepted, &first); a.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("the first request is a repeated one: %v", a.header)
	}
	for _, key := range []string{"k-1", `"k-1"`} {
		a := post(access.Operator, key, ` {"filter":{"error_class":"record_too_large"}, "action":"replay"}`).into(t, http.StatusAccepted, &again)
		if again.ID != first.ID || a.header.Get("Idempotency-Replayed") != "true" || a.header.Get("Location") != "/v1/jobs/"+first.ID {
			t.Errorf("again with %s: %v %s, want job %s", key, a.header, a.body, first.ID)
		}
	}
	if p := post(access.Operator, "k-1", `{"action":"unblock","filter":{}}`).problemIn(t, http.StatusUnprocessableEntity); p.Type != httpapi.TypeKeyReuse {
		t.Errorf("another body: %+v", p)
	}
	if post(access.Admin, "k-1", body).into(t, http.StatusAccepted, &other); other.ID == first.ID {
		t.Error("two callers share a key")
	}
	for _, bad := range []string{"a b", `"k`, `""`} {
		if p := post(access.Operator, bad, body).problemIn(t, http.StatusUnprocessableEntity); p.Type != httpapi.TypeInvalid || p.Errors[0].Location != "header.Idempotency-Key" {
			t.Errorf("the key %s: %+v", bad, p)
		}
	}
	if open, err := b.jobs().ListOpen(t.Context()); err != nil || len(open) != 2 {
		t.Errorf("%d jobs, %v, want 2", len(open), err)
	}
}
