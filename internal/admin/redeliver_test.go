package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/redeliver"
)

const redeliverPath = "/v1/subscriptions/mail/redeliver"

// mailRedeliverer finds three messages of the subscription mail, and makes the dead letters ids.
type mailRedeliverer struct {
	err error
	ids []gocql.UUID
}

func (m *mailRedeliverer) Check(_ context.Context, r *jobs.Redelivery) error {
	if r.Subscription != "mail" {
		return fmt.Errorf("subscription %q: %w", r.Subscription, subscriptions.ErrNotFound)
	}
	return m.err
}

func (m *mailRedeliverer) Preview(ctx context.Context, r *jobs.Redelivery) (*redeliver.Plan, error) {
	if err := m.Check(ctx, r); err != nil {
		return nil, err
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	p := &redeliver.Plan{
		Redelivery: *r, Records: 120, Messages: 3, Keys: 1, Waiting: 1, First: at, Last: at.Add(time.Hour),
		Partitions: []redeliver.PartitionPlan{{Topic: "OrderCreated", Messages: 3, First: 17, Last: 40}},
		Sample:     []redeliver.Sample{{Topic: "OrderCreated", Offset: 17, Key: "customer-42", EventID: "01a2005c-395d-72e1-8345-2406e2489440", Type: "OrderCreated", At: at}},
	}
	p.Until = at.Add(2 * time.Hour)
	return p, nil
}

func (m *mailRedeliverer) Redeliver(context.Context, *jobs.Redelivery, dlq.Actor, func(jobs.Reading)) ([]gocql.UUID, error) {
	return m.ids, m.err
}

// An operator previews a redelivery, creates its job once for a key, and the audit trail states it
// in one sentence.
func TestRedeliver_PreviewJobAudit(t *testing.T) {
	t.Parallel()
	from := &mailRedeliverer{}
	b := setup(t, func(c *Config) { c.Redeliverer = from })
	const slice = `{"key":"customer-42","filter":"data.total > 100","since":"2026-01-02T00:00:00Z","until":"2026-01-03T00:00:00Z","rate":50,"follow":"0s"}`
	var dry RedeliverPreviewBody
	b.ask(t, access.Operator, "POST", redeliverPath, `{"key":"customer-42","dry_run":true}`, httpapi.ReasonHeader, "").into(t, http.StatusOK, &dry)
	want, _ := from.Preview(t.Context(), &jobs.Redelivery{Subscription: "mail", Slice: jobs.Slice{Key: "customer-42"}})
	if !dry.DryRun || !reflect.DeepEqual(dry.Preview, *want) {
		t.Errorf("the preview is %+v, want %+v", dry, want)
	}
	if lines := b.auditEntries(t, ""); len(lines) != 0 {
		t.Errorf("a preview is in the audit: %+v", lines)
	}

	post := func(body string) answer {
		return b.ask(t, access.Operator, "POST", redeliverPath, body, "Idempotency-Key", "k-1", httpapi.ReasonHeader, "mail 2.3 lost them")
	}
	var made, again JobBody
	a := post(slice).into(t, http.StatusAccepted, &made)
	r := made.Redelivery
	if made.Action != dlq.ActionReplay || made.Rate != 50 || made.Filter != nil || r == nil || r.Subscription != "mail" || r.Key != "customer-42" || r.Filter != "data.total > 100" ||
		!r.Until.Equal(time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)) || a.header.Get("Location") != "/v1/jobs/"+made.ID {
		t.Errorf("the job is %+v %+v at %s", made, r, a.header.Get("Location"))
	}
	if a := post(slice).into(t, http.StatusAccepted, &again); again.ID != made.ID || a.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("with the same key there is job %s after %s", again.ID, made.ID)
	}
	if p := post(`{"key":"another"}`).problemIn(t, http.StatusUnprocessableEntity); p.Type != httpapi.TypeKeyReuse {
		t.Errorf("another slice with the key: %+v", p)
	}
	if open, err := b.jobs().ListOpen(t.Context()); err != nil || len(open) != 1 {
		t.Errorf("%d jobs, %v, want 1", len(open), err)
	}

	const of = ", key customer-42, filter data.total > 100, since 2026-01-02T00:00:00Z, until 2026-01-03T00:00:00Z, reason "
	summary := func(n int) string { return b.auditEntries(t, "action=redeliver-subscription,pause-job")[n].Summary }
	if got, want := summary(1), "redeliver subscription mail"+of+"mail 2.3 lost them"; got != want {
		t.Errorf("before it runs the audit says %q, want %q", got, want)
	}
	for seq := range int64(3) {
		from.ids = append(from.ids, b.writeDeadLetter(t, testDeadLetter("a", seq+1), time.Time{}).EventID)
	}
	id := mustID(t, made.ID)
	if j, err := jobs.NewRunner(b.jobs(), jobs.RunnerConfig{Poll: 5 * time.Millisecond, Redeliverer: from}).RunJob(t.Context(), id); err != nil || j.State != jobs.Done || j.Progress.Changed != 3 {
		t.Fatalf("the job is %+v, %v", j, err)
	}
	if got, want := summary(2), "redeliver subscription mail, 3 messages"+of+"mail 2.3 lost them"; got != want {
		t.Errorf("after it ran the audit says %q, want %q", got, want)
	}
	b.ask(t, access.Operator, "POST", "/v1/jobs/"+made.ID+"/pause", "", httpapi.ReasonHeader, "late").problemIn(t, http.StatusConflict)
	if got, want := summary(0), "refused: pause job, redelivery to mail, 3 messages"+of+"late"; got != want {
		t.Errorf("of a change of the job the audit says %q, want %q", got, want)
	}
}

// Refusals name the field and the fix, change nothing, and need the role operator.
func TestRedeliver_Refuses(t *testing.T) {
	t.Parallel()
	from := &mailRedeliverer{}
	b := setup(t, func(c *Config) { c.Redeliverer = from })
	for _, tt := range []struct {
		name, body, at string
		err            error
	}{
		{"the field of a slice", `{"filter":"data."}`, "body.filter", &jobs.SliceError{Field: "filter", Problem: "line 1"}},
		{"a slice", `{}`, "body", &jobs.SliceError{Problem: "no slice is selected"}},
		{"a member", `{"keys":"a"}`, "body.keys", nil},
		{"a rate", `{"key":"a","rate":-1}`, "body.rate", nil},
		{"a time", `{"since":"yesterday"}`, "body.since", nil},
		{"a duration", `{"key":"a","follow":"soon"}`, "body.follow", nil},
	} {
		for _, body := range []string{tt.body, tt.body[:len(tt.body)-1] + map[bool]string{true: "", false: ","}[tt.body == "{}"] + `"dry_run":true}`} {
			if tt.at == "body.follow" && body != tt.body {
				continue // a preview does not wait
			}
			from.err = tt.err
			if p := b.ask(t, access.Operator, "POST", redeliverPath, body).problemIn(t, http.StatusUnprocessableEntity); len(p.Errors) != 1 || p.Errors[0].Location != tt.at {
				t.Errorf("%s: %+v, want %s", tt.name, p.Errors, tt.at)
			}
		}
	}
	from.err = nil
	for name, tt := range map[string]struct {
		role       access.Role
		path, body string
		reason     string
		code       int
		typ        string
	}{
		"another subscription": {access.Operator, "/v1/subscriptions/sms/redeliver", `{"key":"a"}`, "x", http.StatusNotFound, httpapi.TypeSubscriptionNotFound},
		"an invalid name":      {access.Operator, "/v1/subscriptions/a.b/redeliver", `{"key":"a"}`, "x", http.StatusUnprocessableEntity, httpapi.TypeInvalid},
		"no reason":            {access.Operator, redeliverPath, `{"key":"a"}`, "", http.StatusUnprocessableEntity, httpapi.TypeInvalid},
		"a viewer":             {access.Viewer, redeliverPath, `{"key":"a","dry_run":true}`, "x", http.StatusForbidden, httpapi.TypeForbidden},
		"a consumer":           {consumerOfMail, redeliverPath, `{"key":"a","dry_run":true}`, "x", http.StatusForbidden, httpapi.TypeForbidden},
	} {
		if p := b.ask(t, tt.role, "POST", tt.path, tt.body, httpapi.ReasonHeader, tt.reason).problemIn(t, tt.code); p.Type != tt.typ {
			t.Errorf("%s: %+v", name, p)
		}
	}
	from.err = fmt.Errorf("%w: connection refused", jobs.ErrTopics)
	if a := b.ask(t, access.Operator, "POST", redeliverPath, `{"key":"a","dry_run":true}`); a.problemIn(t, http.StatusServiceUnavailable).Type != httpapi.TypeBroker || a.header.Get("Retry-After") == "" {
		t.Errorf("without a broker: %s %v", a.body, a.header)
	}
	from.err = errors.New("no answer")
	if p := b.ask(t, access.Operator, "POST", redeliverPath, `{"key":"a"}`).problemIn(t, http.StatusServiceUnavailable); p.OutcomeUnknown {
		t.Errorf("without a database: %+v", p)
	}
	b.reconfigure(t, func(c *Config) { c.Redeliverer = nil })
	b.ask(t, access.Operator, "POST", redeliverPath, `{"key":"a"}`).problemIn(t, http.StatusConflict)
	if open, err := b.jobs().ListOpen(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("%d jobs, %v, want none", len(open), err)
	}
}
