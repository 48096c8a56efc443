package admin

import (
	"fmt"
	"html"
	"net/http"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// signInPage is the page of a sign-in that failed: what failed, and the fix. It needs no script, and
// html/template would make the program 5 MB larger, because it calls methods by name.
const signInPage = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Sign-in failed · Outbox</title>
<link rel="stylesheet" href="/console/static/css/palette.css">
<link rel="stylesheet" href="/console/static/css/base.css">
<link rel="stylesheet" href="/console/static/css/parts.css">
<link rel="stylesheet" href="/console/static/css/pages.css">
</head>
<body>
<main><div class="panel signin stack">
<h1>Sign-in failed</h1>
<p class="danger-text break" role="alert">%s</p>
<p class="break">%s</p>
<div class="row"><a class="button primary" href="/console/">To the sign-in</a></div>
</div></main>
</body>
</html>
`

// refuseSignIn writes signInPage.
func refuseSignIn(w http.ResponseWriter, _ *http.Request, e *access.SignInError) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(e.Status)
	_, _ = fmt.Fprintf(w, signInPage, html.EscapeString(e.What), html.EscapeString(e.Fix)) // the client has disconnected
}
