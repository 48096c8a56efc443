//go:build browser

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// tab is a tab of the browser.
type tab struct {
	t   *testing.T
	w   *world
	ctx context.Context

	mu     sync.Mutex
	wrong  []string // exceptions, and violations of the policy
	tries  bool     // violations of the policy are expected
	alerts int
}

// open opens a page of the console in a private window, signed in as a role.
func (w *world) open(role access.Role, path string) *tab {
	w.t.Helper()
	b := w.window()
	b.visit(path + "#token=" + w.tokens[role])
	return b
}

// window opens an empty private window.
func (w *world) window() *tab {
	w.t.Helper()
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	b := &tab{t: w.t, w: w, ctx: ctx}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			b.shoot("failed-" + strings.ReplaceAll(w.t.Name(), "/", "-"))
		}
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.wrong) > 0 && !b.tries {
			w.t.Errorf("the browser complained:\n%s", strings.Join(b.wrong, "\n"))
		}
	})
	if err := chromedp.Listen(b.ctx, b.listen); err != nil {
		w.t.Fatal(err)
	}
	call(b, log.Enable, cdp.Empty{})
	// Each tab is to believe that it is the one in front.
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	b.size(1280, 860)
	return b
}

func (b *tab) listen(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := ev.(type) {
	case *runtime.EventExceptionThrown:
		b.wrong = append(b.wrong, "exception: "+(&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *log.EventEntryAdded:
		// Some tests expect responses such as 403 and check them.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			b.wrong = append(b.wrong, string(e.Entry.Source)+": "+e.Entry.Text)
		}
	case *page.EventJavascriptDialogOpening:
		b.alerts++
		go func() {
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}()
	}
}

// call sends a command of the protocol.
func call[P, R any](b *tab, cmd cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, cmd, params); err != nil {
		b.t.Fatalf("%s: %v", cmd.Method, err)
	}
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// visit opens a page and waits until it is rendered.
func (b *tab) visit(path string) {
	b.t.Helper()
	// A browser does not reload a page if only the fragment differs.
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate("http://"+b.w.addr+"/console"+path))
	b.sees("main h1", "")
}

// eval evaluates an expression with JSON arguments and a JSON result.
func eval[T any](b *tab, expr string, args ...any) T {
	b.t.Helper()
	texts := make([]any, len(args))
	for i, a := range args {
		j, err := json.Marshal(a)
		if err != nil {
			b.t.Fatal(err)
		}
		texts[i] = string(j)
	}
	text := fmt.Sprintf(expr, texts...)
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](text, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", text, err)
	}
	return out
}

// load runs a script in the page as a developer's tools would.
func (b *tab) load(script string) {
	b.t.Helper()
	if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](script+"; true")); err != nil {
		b.t.Fatal(err)
	}
}

const inside = `[...document.querySelectorAll(%s)].filter((e) => e.checkVisibility()).some((e) => e.innerText.includes(%s) || (e.value ?? "").includes(%[2]s))`

// sees waits until one of the elements contains a text.
func (b *tab) sees(selector, text string) {
	b.t.Helper()
	if !eventually(func() bool { return eval[bool](b, inside, selector, text) }) {
		b.t.Fatalf("%q does not appear in %s; the page shows:\n%s", text, selector, b.text("body"))
	}
}

// gone waits until the element is removed.
func (b *tab) gone(selector string) {
	b.t.Helper()
	if !eventually(func() bool { return b.count(selector) == 0 }) {
		b.t.Fatalf("%s stays", selector)
	}
}

func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, `document.querySelector(%s)?.innerText ?? ""`, selector)
}

// has waits until there are n elements.
func (b *tab) has(selector string, n int) {
	b.t.Helper()
	if !eventually(func() bool { return b.count(selector) == n }) {
		b.t.Errorf("there are %d of %s, want %d", b.count(selector), selector, n)
	}
}

func (b *tab) count(selector string) int {
	b.t.Helper()
	return eval[int](b, `document.querySelectorAll(%s).length`, selector)
}

// click clicks at the position of the element once it is visible. It repeats a
// click that missed because the page was rendered again.
func (b *tab) click(selector string) {
	b.t.Helper()
	var err error
	if !eventually(func() bool {
		if !eval[bool](b, `Boolean(document.querySelector(%s)?.checkVisibility()) && !document.querySelector(%[1]s).disabled`, selector) {
			return false
		}
		eval[bool](b, `(window.hit = false, addEventListener("click", (e) => { window.hit = Boolean(e.target.closest(%s)); }, {capture: true, once: true}), true)`, selector)
		if err = chromedp.Do(b.ctx, chromedp.Click(chromedp.CSS(selector))); err != nil {
			return false
		}
		// The click may have changed the page, or be about to.
		hit, failed := chromedp.Run(b.ctx, chromedp.Evaluate[bool](`window.hit ?? true`))
		if failed != nil && !strings.Contains(failed.Error(), "navigated") {
			b.t.Fatalf("click %s: %v", selector, failed)
		}
		return hit || failed != nil
	}) {
		b.t.Fatalf("%s cannot be clicked (%v); the page shows:\n%s", selector, err, b.text("body"))
	}
}

// types types into the element that has the focus.
func (b *tab) types(text string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(text))
}

// fills replaces the text of a field.
func (b *tab) fills(selector, text string) {
	b.t.Helper()
	if !eventually(func() bool {
		b.click(selector)
		eval[bool](b, `(document.querySelector(%s)?.select(), true)`, selector)
		b.types(text)
		return eval[string](b, `document.querySelector(%s)?.value ?? ""`, selector) == text
	}) {
		b.t.Fatalf("%s cannot be filled with %q", selector, text)
	}
}

// confirm enters a reason in the dialog and confirms it.
func (b *tab) confirm(reason string) {
	b.t.Helper()
	b.sees("dialog label", "Reason")
	b.fills("dialog [data-key=reason]", reason)
	b.click("dialog [data-key=yes]")
	b.gone("dialog")
}

// focus names the element that has the focus: its data-key, text or tag.
func (b *tab) focus() string {
	b.t.Helper()
	return eval[string](b, `(() => { const e = document.activeElement; return e?.dataset?.key ?? (e?.getAttribute("aria-label") || e?.innerText || e?.tagName || "") })()`)
}

// awaitFocus waits until the element of that name has the focus.
func (b *tab) awaitFocus(name string) {
	b.t.Helper()
	if !eventually(func() bool { return b.focus() == name }) {
		b.t.Errorf("the focus is on %s, want it on %s", b.focus(), name)
	}
}

// goes presses a shortcut to a page. Its two keys must follow each other
// quickly, so it repeats them if they did not.
func (b *tab) goes(keys, heading string) {
	b.t.Helper()
	if !eventually(func() bool {
		b.types(keys)
		return eval[bool](b, inside, "main h1", heading)
	}) {
		b.t.Fatalf("%s does not lead to %s", keys, heading)
	}
}

// at waits until the address is a page's.
func (b *tab) at(path string) {
	b.t.Helper()
	if !eventually(func() bool { return b.path() == path }) {
		b.t.Errorf("the address is %s, want %s", b.path(), path)
	}
}

func (b *tab) path() string {
	b.t.Helper()
	return eval[string](b, `location.pathname.replace("/console", "") + location.search`)
}

// theme has the system light or dark, without transitions from one to the other.
func (b *tab) theme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
}

func (b *tab) size(width, height int64) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500})
}

// shoot takes a screenshot if requested.
func (b *tab) shoot(name string) {
	dir := os.Getenv("OUTBOX_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Logf("no picture of %s: %v", name, err)
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Error(err)
	}
}
