package admin

import (
	"context"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// The result of a change is recorded although the clock is set back during the change.
func TestClocks_AuditHasTheOutcome(t *testing.T) {
	t.Parallel()
	clock := new(scyllatest.Clock)
	clock.Set(2 * time.Minute)
	b := setup(t, func(c *Config) { c.Clock = clock })
	a := newAudit(&b.cfg, b.metrics)
	a.session = clock.Connect(t, b.Node)
	ctx := access.With(t.Context(), access.Principal{Name: "ada", Role: access.Admin})
	if err := a.change(ctx, entry{Action: "replay", Target: "x", Reason: "a test"}, func(context.Context, dlq.Actor) (string, error) {
		clock.Set(0)
		return "y", nil
	}); err != nil {
		t.Fatal(err)
	}
	var state, target string
	if err := b.Session.Query("SELECT state, target FROM admin_audit").Scan(&state, &target); err != nil || state != auditDone || target != "y" {
		t.Errorf("the audit has %q of %q, %v, want %q of y", state, target, err, auditDone)
	}
}
