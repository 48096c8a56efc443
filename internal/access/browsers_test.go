package access

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestBrowsers_Check(t *testing.T) {
	t.Parallel()
	const jsonType = "Content-Type: application/json"
	for _, tt := range []struct {
		name, method, body string
		host, local        string
		header             []string
		any                bool // host
		want               Reason
	}{
		{name: "a program", method: "POST", body: "{}", header: []string{jsonType}},
		{name: "with a charset", method: "PATCH", body: "{}", header: []string{"Content-Type: application/json; charset=utf-8"}},
		{name: "a kind of JSON", method: "PATCH", body: "{}", header: []string{"Content-Type: application/merge-patch+json"}},
		{name: "compressed", method: "POST", body: "{}", header: []string{jsonType, "Content-Encoding: gzip"}, want: Encoded},
		{name: "as it is", method: "POST", body: "{}", header: []string{jsonType, "Content-Encoding: identity"}},
		{name: "no body", method: "POST"},
		{name: "no body, as a form", method: "POST", header: []string{"Content-Type: application/x-www-form-urlencoded"}},
		{name: "no type", method: "POST", body: "{}", want: NoJSON},
		{name: "text", method: "POST", body: "{}", header: []string{"Content-Type: text/plain"}, want: NoJSON},
		{name: "a form", method: "PUT", body: "{}", header: []string{"Content-Type: application/x-www-form-urlencoded"}, want: NoJSON},
		{name: "a form in parts", method: "POST", body: "{}", header: []string{"Content-Type: multipart/form-data; boundary=x"}, want: NoJSON},
		{name: "JSON as a parameter", method: "POST", body: "{}", header: []string{"Content-Type: text/plain; application/json"}, want: NoJSON},
		{name: "nonsense", method: "DELETE", body: "{}", header: []string{"Content-Type: ;;"}, want: NoJSON},
		{name: "a page of ours", method: "POST", body: "{}", header: []string{jsonType, "Sec-Fetch-Site: same-origin", "Origin: http://127.0.0.1:8080"}},
		{name: "the address bar", method: "POST", body: "{}", header: []string{jsonType, "Sec-Fetch-Site: none"}},
		{name: "a page elsewhere", method: "POST", body: "{}", header: []string{jsonType, "Sec-Fetch-Site: cross-site", "Origin: https://evil.example"}, want: ForeignOrigin},
		{name: "a page elsewhere, no body", method: "DELETE", header: []string{"Sec-Fetch-Site: cross-site"}, want: ForeignOrigin},
		{name: "a page on another port", method: "POST", body: "{}", header: []string{jsonType, "Sec-Fetch-Site: same-site"}, want: ForeignOrigin},
		{name: "an old browser", method: "POST", body: "{}", header: []string{jsonType, "Origin: https://evil.example"}, want: ForeignOrigin},
		{name: "an old browser here", method: "POST", body: "{}", header: []string{jsonType, "Origin: http://127.0.0.1:8080"}},
		{name: "a page without an origin", method: "POST", body: "{}", header: []string{jsonType, "Origin: null"}, want: ForeignOrigin},
		{name: "a link from elsewhere", method: "GET", header: []string{"Sec-Fetch-Site: cross-site"}},
		{name: "localhost", method: "GET", host: "LocalHost:8080", local: "127.0.0.1"},
		{name: "no port", method: "GET", host: "127.0.0.1", local: "127.0.0.1"},
		{name: "IPv6", method: "GET", host: "[::1]:8080", local: "::1"},
		{name: "IPv6, no port", method: "GET", host: "[::1]", local: "::1"},
		{name: "a name that was rebound", method: "GET", host: "evil.example:8080", local: "127.0.0.1", want: ForeignHost},
		{name: "a name that was rebound, to change", method: "POST", host: "evil.example:8080", local: "127.0.0.1", body: "{}", header: []string{jsonType, "Sec-Fetch-Site: same-origin"}, want: ForeignHost},
		{name: "a name that looks right", method: "GET", host: "127.0.0.1.evil.example", local: "127.0.0.1", want: ForeignHost},
		{name: "no host", method: "GET", host: "-", local: "127.0.0.1", want: ForeignHost},
		{name: "a rebound name beyond loopback", method: "GET", host: "evil.example", local: "10.0.0.1", want: ForeignHost},
		{name: "a rebound name in a container", method: "POST", host: "evil.example:8080", local: "172.18.0.4", body: "{}", header: []string{jsonType, "Sec-Fetch-Site: same-origin"}, want: ForeignHost},
		{name: "an address beyond loopback", method: "GET", host: "10.0.0.1:8080", local: "10.0.0.1"},
		{name: "a configured name", method: "GET", host: "Orders.Example:8080", local: "10.0.0.1"},
		{name: "a configured name of the root", method: "GET", host: "orders.example.", local: "127.0.0.1"},
		{name: "with tokens, behind a proxy", method: "GET", host: "proxy.example", local: "127.0.0.1", any: true},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tt.method, "/", strings.NewReader(tt.body))
		r.Host = "127.0.0.1:8080"
		if tt.host != "" {
			r.Host = strings.TrimPrefix(tt.host, "-")
		}
		if tt.local != "" {
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(tt.local), Port: 8080}))
		}
		for _, h := range tt.header {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		var got Reason
		var log strings.Builder
		passed := false
		hosts, err := NewHosts("0.0.0.0:8080", []string{"orders.example"})
		if err != nil {
			t.Fatal(err)
		}
		if tt.any {
			hosts = nil
		}
		b := Browsers{
			Hosts: hosts, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Refuse: func(_ http.ResponseWriter, _ *http.Request, e *Error) { got = e.Reason },
		}
		b.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true })).ServeHTTP(httptest.NewRecorder(), r)
		if got != tt.want || passed != (tt.want == "") || !strings.Contains(log.String(), string(tt.want)) {
			t.Errorf("%s: refused for %q, passed %t, log %q; want %q", tt.name, got, passed, log.String(), tt.want)
		}
	}
}

func TestNewHosts(t *testing.T) {
	t.Parallel()
	h, err := NewHosts("shop.internal:8080", []string{"orders", " Orders.Example ", "a_b.example"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shop.internal:8080", "orders", "orders.example:1", "a_b.example", "[::1]", "[2001:db8::1]:80", "10.1.2.3"} {
		if !h.Allow(name) {
			t.Errorf("Allow(%q) = false", name)
		}
	}
	for _, name := range []string{"", ":8080", "evil.example", "orders.evil.example", "localhost.evil.example", "10.1.2.3.evil.example"} {
		if h.Allow(name) {
			t.Errorf("Allow(%q) = true", name)
		}
	}
	for _, bad := range []string{"", "*", "*.example", "https://orders.example", "orders.example:8080", "a b", "-x", strings.Repeat("a.", 200) + "a"} {
		if _, err := NewHosts("127.0.0.1:0", []string{bad}); err == nil {
			t.Errorf("NewHosts(%q) took it", bad)
		}
	}
}
