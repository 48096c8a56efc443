//go:build browser

package browser

import (
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/test/idp"
)

// signInAt lets users of the console sign in at an issuer.
func (w *world) signInAt(issuer *idp.Issuer) {
	w.t.Helper()
	issuer.Redirect = "http://" + w.addr + access.CallbackPath
	gate, err := access.New(access.Config{OIDC: access.OIDC{
		Issuer: issuer.URL, Audience: idp.Audience, ClientSecret: idp.Secret, ConsoleURL: "http://" + w.addr + "/console",
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.stop()
	w.gate = gate
	w.serve(w.addr)
}

// A user signs in at the issuer, returns to the page of the link, changes a dead letter under the
// own name, and signs out. No script can read the session.
func TestSignIn_AndChange(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.writeDeadLetter(nil)
	issuer := idp.New(t)
	w.signInAt(issuer)
	name := strings.TrimPrefix(issuer.URL, "http://")

	issuer.Next(map[string]any{"roles": nil}, "")
	b := w.window()
	b.visit("/dead-letters/" + id.String())
	b.sees("main h1", "Sign in")
	b.sees("[data-key=issuer]", "Sign in with "+name)
	b.load(axeSource(t))
	b.accessible("sign-in")
	b.shoot("sign-in")
	b.click("[data-key=issuer]")
	b.sees("main h1", "Sign-in failed")
	b.sees("[role=alert]", "has no role here")
	b.sees("main", "outbox-operator")
	b.load(axeSource(t))
	b.accessible("sign-in that failed")
	b.shoot("sign-in-failed")
	b.click("main a")
	b.sees("main h1", "Sign in")

	issuer.Next(map[string]any{"email": "mara@example.com", "email_verified": true}, "")
	b.visit("/dead-letters/" + id.String())
	b.click("[data-key=issuer]")
	b.sees(".crumbs", id.String())
	b.sees(".who", "oidc:email:mara@example.com")
	if c := eval[string](b, `document.cookie + JSON.stringify(sessionStorage)`); c != "{}" {
		t.Errorf("a script can read %s", c)
	}
	b.click("[data-key=act-replay]")
	b.confirm("INC-7")
	w.until(id, "pending", is(dlq.Pending))
	b.visit("/audit")
	b.sees("tbody", "oidc:email:mara@example.com")

	b.click(".who")
	b.click("dialog footer .button")
	b.sees("main h1", "Sign in")
	if got := eval[int](b, `fetch("/v1/me").then((r) => r.status)`); got != 401 {
		t.Errorf("after signing out /v1/me = %d", got)
	}
}
