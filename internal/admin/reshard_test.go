package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// testResharder is a relay with a number of shards.
type testResharder struct {
	shards, open         int
	failed, refused, ran error  // of Open, Refuse and Run
	by                   string // of the last Run
	running              func(context.Context)
}

func (r *testResharder) Relay() string { return "orders" }

func (r *testResharder) Open(_ context.Context, to int) (Resharding, error) {
	if r.failed != nil {
		return nil, r.failed
	}
	r.open++
	return &testResharding{r, to}, nil
}

type testResharding struct {
	*testResharder
	to int
}

func (r *testResharding) Plan() ReshardPlan {
	p := ReshardPlan{
		Relay: "orders", From: r.shards, To: r.to, Agreed: r.shards, Topic: "outbox.relay.orders.shards", Partitions: r.shards,
		Members: []string{}, Instances: []string{}, Steps: []string{},
	}
	if r.to != r.shards {
		p.Steps = append(p.Steps, fmt.Sprintf("agree on %d", r.to), fmt.Sprintf("add %d partitions to the topic", r.to-r.shards))
	}
	return p
}

func (r *testResharding) Refuse() error { return r.refused }

func (r *testResharding) Run(ctx context.Context, by string) error {
	if r.running != nil {
		r.running(ctx)
	}
	if r.by = by; r.ran == nil {
		r.shards = r.to
	}
	return r.ran
}

func (r *testResharding) Close() { r.open-- }

const reshardPath = "/v1/relays/orders/reshard"

func setupReshard(t *testing.T) (*fixture, *testResharder) {
	t.Helper()
	r := &testResharder{shards: 2}
	return setup(t, func(c *Config) { c.Resharder = r }), r
}

// lastAudited returns the last entry of the audit trail.
func (b *fixture) lastAudited(t *testing.T) (last AuditEntry) {
	t.Helper()
	var page struct{ Entries []AuditEntry }
	b.ask(t, access.Viewer, "GET", "/v1/audit?limit=1", "").into(t, 200, &page)
	if len(page.Entries) > 0 {
		last = page.Entries[0]
	}
	return last
}

func TestReshard_PlanAndChange(t *testing.T) {
	t.Parallel()
	b, r := setupReshard(t)
	var out ReshardedBody
	b.ask(t, access.Admin, "POST", reshardPath, `{"to":3,"dry_run":true}`).into(t, 200, &out)
	if !out.DryRun || out.Changed || out.Plan.From != 2 || len(out.Plan.Steps) != 2 || r.shards != 2 || b.lastAudited(t).Action != "" {
		t.Errorf("dry run: %+v, %d shards, audit %+v", out, r.shards, b.lastAudited(t))
	}
	b.ask(t, access.Admin, "POST", reshardPath, `{"to":3,"from":2}`, httpapi.ReasonHeader, "more%20hosts").into(t, 200, &out)
	if l := b.lastAudited(t); !out.Changed || out.DryRun || out.Plan.From != 2 || r.shards != 3 || r.by != "a-admin" ||
		l.Action != "reshard-relay" || l.Target != "orders" || l.Detail != `{"from":2,"to":3}` || l.Reason != "more hosts" || l.Actor != "a-admin" || l.State != auditDone {
		t.Errorf("change: %+v, %+v, audit %+v", out, r, l)
	}
	last := b.lastAudited(t).ID
	b.ask(t, access.Admin, "POST", reshardPath, `{"to":3}`).into(t, 200, &out)
	if out.Changed || b.lastAudited(t).ID != last {
		t.Errorf("the same number again: %+v", out)
	}
	if r.open != 0 {
		t.Errorf("%d changes are not closed", r.open)
	}
}

// Only admins change the number, with a reason.
func TestReshard_RefusesRoleAndMissingReason(t *testing.T) {
	t.Parallel()
	b, r := setupReshard(t)
	for _, body := range []string{`{"to":3}`, `{"to":3,"dry_run":true}`} {
		b.ask(t, access.Operator, "POST", reshardPath, body).problemIn(t, 403)
	}
	p := b.ask(t, access.Admin, "POST", reshardPath, `{"to":3}`, httpapi.ReasonHeader, "").problemIn(t, 422)
	if len(p.Errors) != 1 || p.Errors[0].Location != "header.Audit-Reason" || r.shards != 2 || b.lastAudited(t).Action != "" {
		t.Errorf("without a reason: %+v, %d shards", p, r.shards)
	}
	for body, field := range map[string]string{`{"to":0}`: "body.to", `{"to":257}`: "body.to", `{}`: "body", `{"to":3,"from":-1}`: "body.from"} {
		if p := b.ask(t, access.Admin, "POST", reshardPath, body).problemIn(t, 422); p.Errors[0].Location != field {
			t.Errorf("%s: %+v", body, p)
		}
	}
	if p := b.ask(t, access.Admin, "POST", "/v1/relays/others/reshard", `{"to":3}`).problemIn(t, 404); p.Type != httpapi.TypeNotFound || !strings.Contains(p.Detail, `"orders"`) || !strings.Contains(p.Hint, "relay.name") {
		t.Errorf("another relay: %+v", p)
	}
	b.reconfigure(t, func(c *Config) { c.Resharder = nil })
	b.ask(t, access.Admin, "POST", reshardPath, `{"to":3}`).problemIn(t, 409)
}

// A refusal changes nothing; the audit trail distinguishes it from a failure, which may have
// changed the number.
func TestReshard_Errors(t *testing.T) {
	t.Parallel()
	b, r := setupReshard(t)
	r.refused = &ReshardError{Err: errors.New("instances of the relay run: relay-1/7"), Fix: "stop them", Refused: true}
	var out ReshardedBody
	b.ask(t, access.Admin, "POST", reshardPath, `{"to":3,"dry_run":true}`).into(t, 200, &out)
	if out.Refused != r.refused.Error() || out.Hint != "stop them" {
		t.Errorf("dry run beside an instance: %+v", out)
	}
	p := b.ask(t, access.Admin, "POST", reshardPath, `{"to":3}`).problemIn(t, 409)
	if l := b.lastAudited(t); p.Detail != "Instances of the relay run: relay-1/7." || p.Hint != "stop them" || p.OutcomeUnknown || r.shards != 2 || r.by != "" || l.State != auditRefused {
		t.Errorf("beside an instance: %+v, audit %+v", p, l)
	}
	r.refused = nil
	p = b.ask(t, access.Admin, "POST", reshardPath, `{"to":3,"from":4}`).problemIn(t, 409)
	if l := b.lastAudited(t); p.Type != httpapi.TypeRefused || !strings.Contains(p.Detail, "2 shards, not 4") || r.by != "" || l.State != auditRefused {
		t.Errorf("after another change: %+v, audit %+v", p, l)
	}
	r.ran = &ReshardError{Err: errors.New("another process has changed the number of shards"), Refused: true}
	p = b.ask(t, access.Admin, "POST", reshardPath, `{"to":3}`).problemIn(t, 409)
	if l := b.lastAudited(t); p.OutcomeUnknown || l.State != auditRefused {
		t.Errorf("overtaken: %+v, audit %+v", p, l)
	}
	r.ran = &ReshardError{Err: errors.New("add partitions: the Kafka user needs the right ALTER"), Fix: "grant it"}
	p = b.ask(t, access.Admin, "POST", reshardPath, `{"to":3}`).problemIn(t, 503)
	if l := b.lastAudited(t); !p.OutcomeUnknown || p.Detail != "Add partitions: the Kafka user needs the right ALTER." || p.Hint != "grant it" || l.State != auditUnknown || !strings.Contains(l.Outcome, "ALTER") {
		t.Errorf("failed: %+v, audit %+v", p, l)
	}
	last := b.lastAudited(t).ID
	r.failed = &ReshardError{Err: errors.New("connect to Kafka"), Fix: "check that it runs"}
	if p := b.ask(t, access.Admin, "POST", reshardPath, `{"to":3}`).problemIn(t, 503); p.OutcomeUnknown || p.Hint != "check that it runs" || b.lastAudited(t).ID != last || r.open != 0 {
		t.Errorf("without a broker: %+v, %d open", p, r.open)
	}
}

// A client that disconnects does not interrupt the change.
func TestReshard_ContinuesWithoutItsClient(t *testing.T) {
	t.Parallel()
	b, r := setupReshard(t)
	reasoned := context.WithValue(t.Context(), reasonKey{}, "a test")
	ctx, hangUp := context.WithCancel(access.With(reasoned, access.Principal{Name: "ann", Role: access.Admin}))
	r.running = func(ctx context.Context) {
		hangUp()
		if _, bounded := ctx.Deadline(); ctx.Err() != nil || !bounded {
			t.Errorf("the context of the change: %v, bounded %v", ctx.Err(), bounded)
		}
	}
	ep := &reshardEndpoints{b.ops, b.audit, r}
	in := &reshardInput{Name: "orders", Body: ReshardBody{To: 3}}
	if _, err := ep.reshard(ctx, in); err != nil || r.shards != 3 {
		t.Errorf("reshard() error = %v, %d shards", err, r.shards)
	}
	if l := b.lastAudited(t); l.State != auditDone || time.Since(l.At) > time.Hour {
		t.Errorf("audit %+v", l)
	}
}
