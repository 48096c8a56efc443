package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// The texts of the page of a failed sign-in come in part from the issuer.
func TestRefuseSignIn_EscapesTheTextsOfTheIssuer(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	refuseSignIn(w, nil, &access.SignInError{Status: http.StatusForbidden, What: `refused: <script>alert("1")</script> 100%s`, Fix: "ask <b>her</b> & sign in again"})
	page := w.Body.String()
	for _, want := range []string{"refused: &lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt; 100%s</p>", "ask &lt;b&gt;her&lt;/b&gt; &amp; sign in again</p>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	if got := w.Header().Get("Content-Security-Policy"); w.Code != http.StatusForbidden || !strings.Contains(got, "default-src 'none'") {
		t.Errorf("status %d and policy %q, want 403 and one without scripts", w.Code, got)
	}
}
