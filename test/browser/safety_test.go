//go:build browser

package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// hostile is text that runs where it is taken for markup.
const hostile = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script></script><svg onload=window.hacked=1>javascript:window.hacked=1`

// The content of an event is displayed as text: on every page, in every field,
// and in the dialog before a change.
func TestSafety_PayloadsDoNotRun(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.writeDeadLetter(func(l *dlq.DeadLetter) {
		l.EventType, l.AggregateID, l.AggregateType, l.Topic = hostile, hostile, hostile, hostile
		l.Payload = []byte(`{"` + strings.ReplaceAll(hostile, `"`, `\"`) + `":"` + strings.ReplaceAll(hostile, `"`, `\"`) + `"}`)
		l.ContentType, l.ErrorClass, l.ErrorCode, l.ErrorText = hostile, hostile, hostile, hostile
		l.ErrorChain = []string{hostile, "turned \u202etext\u202c and \u0000 zero"}
		l.Headers = map[string]string{hostile: hostile, "traceparent": hostile}
		l.Metadata, l.Raw = map[string]string{hostile: hostile}, map[string]string{hostile: hostile}
	}).String()
	b := w.open(access.Admin, "/dead-letters/"+id)
	for _, at := range []string{".detail-head h1", ".error-text", ".chain", ".payload", ".pairs", ".facts"} {
		b.sees(at, `onerror=`)
	}
	b.sees(".chain", `turned \u202etext\u202c and \u0000 zero`)
	for _, view := range []string{"raw", "hex", "pretty"} {
		b.click(`[data-key="tab-How the payload is shown-` + view + `"]`)
		b.sees(".payload", "")
	}
	b.click("[data-key=act-discard]")
	b.sees("dialog .preview", "onerror=")
	b.confirm(hostile)
	b.sees(".timeline", "onerror=")
	for _, path := range []string{"/", "/groups", "/dead-letters", "/dead-letters/" + id + "/edit", "/events/" + id, "/audit"} {
		b.visit(path)
		b.checkUnharmed(path)
	}
	b.visit("/audit")
	b.sees("tbody", "onerror=")
	b.checkUnharmed("/audit")
}

// checkUnharmed fails if a part of hostile is more than text.
func (b *tab) checkUnharmed(where string) {
	b.t.Helper()
	if eval[bool](b, `Boolean(window.hacked)`) {
		b.t.Errorf("%s: a script of an event ran", where)
	}
	if n := b.count("img, iframe, object, embed, script:not([src^='/console/static/']), [onerror], [onload]"); n > 0 {
		b.t.Errorf("%s: an event's text is rendered as %d elements", where, n)
	}
	if n := eval[int](b, `[...document.querySelectorAll("a[href]")].filter((a) => !/^https?:$/.test(new URL(a.href).protocol)).length`); n > 0 {
		b.t.Errorf("%s: %d links execute a program", where, n)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.alerts > 0 {
		b.t.Errorf("%s: %d alerts", where, b.alerts)
	}
}

// The content security policy applies even if the code had a bug: the browser
// refuses to execute text.
func TestSafety_PolicyStopsWhatCodeMayNot(t *testing.T) {
	t.Parallel()
	w := start(t)
	b := w.open(access.Viewer, "/dead-letters")
	b.mu.Lock()
	b.tries = true
	b.mu.Unlock()
	for _, try := range []string{
		`document.body.innerHTML = "<b>x</b>"`,
		`document.body.insertAdjacentHTML("beforeend", "<b>x</b>")`,
		`document.createElement("script").text = "window.hacked = 1"`,
		`setTimeout("window.hacked = 1")`,
		`document.body.setAttribute("onclick", "window.hacked = 1")`,
	} {
		if !eval[bool](b, `(() => { try { `+try+`; return false } catch { return true } })()`) {
			t.Errorf("the browser allows %s", try)
		}
	}
	if !eval[bool](b, `fetch("https://example.com/").then(() => false, () => true)`) {
		t.Error("the page may talk to another machine")
	}
	if eval[bool](b, `Boolean(window.hacked)`) {
		t.Error("inline script ran")
	}
	if !eventually(func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.wrong) > 0
	}) {
		t.Error("the browser does not complain")
	}
}

// A token in a link is removed from the address immediately. No cookie contains
// it. A user without a valid token signs in and then sees the page of the link.
func TestSafety_Token(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.writeDeadLetter(nil).String()
	b := w.window()
	b.visit("/dead-letters/" + id)
	b.sees("main h1", "Sign in")
	b.fills("[data-key=token]", "obx_wrong")
	b.click("button[type=submit]")
	b.sees("[role=alert]", "unknown or has expired")
	b.fills("[data-key=token]", w.tokens[access.Viewer])
	b.click("button[type=submit]")
	b.sees(".crumbs", id)

	b.visit("/dead-letters?status=open#token=" + w.tokens[access.Operator])
	b.sees(".who", "operator")
	if at := eval[string](b, `location.href`); strings.Contains(at, "token") || strings.Contains(at, "obx_") || !strings.HasSuffix(at, "/dead-letters?status=open") {
		t.Errorf("the address is %s, want it without the token", at)
	}
	if c := eval[string](b, `document.cookie`); c != "" {
		t.Errorf("there is a cookie: %s", c)
	}
	if n := eval[int](b, `Object.values(localStorage).filter((v) => v.includes("obx_")).length`); n > 0 {
		t.Error("the token is in localStorage, where it outlives the tab")
	}
	// The link of another user in the same tab: only the hash of the address changes.
	eval[bool](b, fmt.Sprintf(`(location.hash = "token=" + %q, true)`, w.tokens[access.Admin]))
	b.sees(".who", "admin")
	if at := eval[string](b, `location.href`); !strings.HasSuffix(at, "/dead-letters?status=open") {
		t.Errorf("after a link in an open tab the address is %s, want it without the token", at)
	}
	b.sees("tbody .small.muted", "the record has 4000 bytes")
	b.visit("/jobs/01a2005c-395d-72e3-8401-994110828553")
	b.sees("main h1", "No such job")
	// An expired token leads to the sign-in, and back to the page.
	eval[bool](b, `(sessionStorage.setItem("outbox.token", "obx_gone"), true)`)
	b.click(`.tabs [data-path="/groups"]`)
	b.sees("[role=alert]", "no longer valid")
	b.fills("[data-key=token]", w.tokens[access.Operator])
	b.click("button[type=submit]")
	b.sees("main h1", "Groups")
	b.click(`.tabs [data-path="/jobs"]`)
	b.sees("main", "No job was started yet")
	b.do(chromedp.NavigateBack())
	b.sees("main h1", "Groups")

	// A form or page of another site has no token, and the browser sends none
	// automatically.
	if got := eval[int](b, `fetch("/v1/dead-letters/"+%s+"/replay", {method: "POST", credentials: "include", headers: {"Content-Type": "application/json"}, body: "{}"}).then((r) => r.status)`, id); got != 401 {
		t.Errorf("a change without a token = %d, want 401", got)
	}
}

// A viewer sees everything without actions, and the API refuses changes.
func TestRoles_OfferedAndRefused(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.writeDeadLetter(nil).String()
	for _, c := range []struct {
		role  access.Role
		offer []string
	}{
		{access.Viewer, nil},
		{access.Operator, []string{"act-replay", "act-unblock", "act-resolve"}},
		{access.Admin, []string{"act-replay", "act-unblock", "act-resolve", "act-discard", "edit"}},
	} {
		b := w.open(c.role, "/dead-letters/"+id)
		b.sees("main", "Cause")
		for _, key := range []string{"act-replay", "act-unblock", "act-suspend", "act-resolve", "act-discard", "edit"} {
			want := 0
			for _, o := range c.offer {
				if o == key {
					want = 1
				}
			}
			if got := b.count(`[data-key="` + key + `"]`); got != want {
				t.Errorf("%s: %s exists %d times, want %d", c.role, key, got, want)
			}
		}
		if c.role != access.Viewer {
			continue
		}
		b.sees("main", "Your role is read-only")
		for _, key := range []string{"r", "d", "e", "s"} {
			b.types(key) // the shortcuts of other roles
		}
		if n := b.count("dialog"); n > 0 || b.path() != "/dead-letters/"+id {
			t.Error("a shortcut opens a change for a viewer")
		}
		b.visit("/dead-letters/" + id + "/edit")
		b.sees("main", "Your role may not edit")
		b.visit("/dead-letters")
		b.click("tbody input")
		b.sees(".selection", "Your role is read-only")
		if n := b.count(".selection [data-key^=act-]"); n > 0 {
			t.Errorf("a viewer is offered %d actions on many", n)
		}
		for _, action := range []string{"replay", "discard"} {
			if got := eval[int](b, `fetch("/v1/dead-letters/"+%s+"/"+%s, {method: "POST", headers: {"Content-Type": "application/json", Authorization: "Bearer " + sessionStorage.getItem("outbox.token")}, body: "{}"}).then((r) => r.status)`, id, action); got != 403 {
				t.Errorf("%s by a viewer = %d, want 403", action, got)
			}
		}
	}
	if l, err := w.deadLetters.Read(t.Context(), mustID(t, id)); err != nil || l.Version != 1 {
		t.Errorf("the dead letter has version %d (%v), want it unchanged", l.Version, err)
	}
}
