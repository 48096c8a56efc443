package access

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const proxy = "10.0.0.9:4711" // a trusted one

func proxies(t testing.TB, networks ...string) Proxies {
	t.Helper()
	if len(networks) == 0 {
		networks = []string{"10.0.0.0/8", "fd00::/8", "192.0.2.7"}
	}
	p, err := NewProxies(networks)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// seenRemote returns the RemoteAddr that a handler behind p receives.
func seenRemote(t testing.TB, p Proxies, remote string, header http.Header) (seen string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.RemoteAddr, r.Header = remote, header
	p.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.RemoteAddr })).ServeHTTP(nil, r)
	if r.RemoteAddr != remote {
		t.Errorf("the request that came in was changed: %q", r.RemoteAddr)
	}
	return seen
}

func TestProxies_ClientAddress(t *testing.T) {
	t.Parallel()
	type lines []string
	for name, tt := range map[string]struct {
		remote string // default proxy
		lines  lines
		want   string
	}{
		"no proxy between":          {"203.0.113.5:80", nil, "203.0.113.5:80"},
		"a stranger makes one up":   {"203.0.113.5:80", lines{"198.51.100.1"}, "203.0.113.5:80"},
		"the proxy itself":          {"", nil, "10.0.0.9"},
		"behind one":                {"", lines{"203.0.113.5"}, "203.0.113.5"},
		"with a port":               {"", lines{"203.0.113.5:5123"}, "203.0.113.5"},
		"IPv6":                      {"", lines{"2001:db8::5"}, "2001:db8::5"},
		"IPv6 in brackets":          {"", lines{"[2001:db8::5]"}, "2001:db8::5"},
		"IPv6 with a port":          {"", lines{"[2001:db8::5]:5123"}, "2001:db8::5"},
		"IPv4 as IPv6":              {"", lines{"::ffff:203.0.113.5"}, "203.0.113.5"},
		"through two":               {"", lines{"203.0.113.5, 10.1.1.1"}, "203.0.113.5"},
		"through a single address":  {"", lines{"203.0.113.5, 192.0.2.7"}, "203.0.113.5"},
		"through one of IPv6":       {"[fd00::1]:80", lines{"203.0.113.5,fd00::2"}, "203.0.113.5"},
		"the proxy as IPv4 in IPv6": {"[::ffff:10.0.0.9]:80", lines{"203.0.113.5"}, "203.0.113.5"},
		"the proxy on a link":       {"[fd00::1%eth0]:80", lines{"203.0.113.5"}, "203.0.113.5"},
		"in several lines":          {"", lines{"198.51.100.1", "203.0.113.5", "10.1.1.1"}, "203.0.113.5"},
		"spoofed":                   {"", lines{"198.51.100.1, 203.0.113.5"}, "203.0.113.5"},
		"spoofed as a proxy":        {"", lines{"198.51.100.1, 10.1.1.1, 203.0.113.5"}, "203.0.113.5"},
		"all are proxies":           {"", lines{"10.1.1.1, 10.1.1.2"}, "10.1.1.1"},
		"hidden":                    {"", lines{"198.51.100.1, unknown, 10.1.1.1"}, "10.1.1.1"},
		"an address on a link":      {"", lines{"fe80::1%eth0"}, "10.0.0.9"},
		"a name":                    {"", lines{"localhost"}, "10.0.0.9"},
		"nothing but commas":        {"", lines{" , ,"}, "10.0.0.9"},
		"an empty element":          {"", lines{"203.0.113.5, ,"}, "203.0.113.5"},
		"an empty line":             {"", lines{"203.0.113.5", ""}, "203.0.113.5"},
		"a quotation mark":          {"", lines{`", 203.0.113.5`}, "203.0.113.5"},
	} {
		header := http.Header{"X-Forwarded-For": tt.lines, "Forwarded": {"for=198.51.100.77"}}
		if tt.remote == "" {
			tt.remote = proxy
		}
		if got := seenRemote(t, proxies(t), tt.remote, header); got != tt.want {
			t.Errorf("%s: %q by %s is %s, want %s", name, tt.lines, tt.remote, got, tt.want)
		}
	}
	if got := seenRemote(t, Proxies{}, proxy, http.Header{"X-Forwarded-For": {"198.51.100.1"}}); got != proxy {
		t.Errorf("nobody is trusted, and the request is from %s", got)
	}
}

// Long lists are not read completely and are cheap.
func TestProxies_HostileHeadersAreCheap(t *testing.T) {
	const size = 32 << 10
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for name, tt := range map[string]struct {
		value string
		want  string
	}{
		"proxies without end": {"198.51.100.1" + fill(",10.1.1.1"), "10.1.1.1"},
		"commas":              {"198.51.100.1" + fill(","), "10.0.0.9"},
		"one long word":       {fill("1"), "10.0.0.9"},
		"dots":                {fill("1."), "10.0.0.9"},
		"colons":              {fill(":"), "10.0.0.9"},
	} {
		p, h := proxies(t), http.Header{}
		h.Set("X-Forwarded-For", tt.value)
		if got := seenRemote(t, p, proxy, h); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr, r.Header = proxy, h
		wrapped := p.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		if n := testing.AllocsPerRun(10, func() { wrapped.ServeHTTP(nil, r) }); n > 3*maxHops {
			t.Errorf("%s: %.0f allocations", name, n)
		}
	}
}

func TestNewProxies_NamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := NewProxies([]string{"10.0.0.1/8", "0.0.0.0/0", "::/0", "::ffff:10.0.0.0/104", "proxy", "fe80::1%eth0", "10.0.0.0/33"})
	for _, want := range []string{
		"use 10.0.0.0/8", `"0.0.0.0/0": would trust every address`, `"::/0": would trust every address`,
		`"::ffff:10.0.0.0/104": must be an address or a network`, `"proxy": must be an address or a network`, `"fe80::1%eth0": must be an address or a network`, `"10.0.0.0/33": must be an address or a network`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewProxies() = %v, want it to say %s", err, want)
		}
	}
	if _, err := NewProxies([]string{"10.0.0.0/8", "::1", "::ffff:10.0.0.1"}); err != nil {
		t.Error(err)
	}
}

// Invalid tokens of one client do not block the JWTs of others behind the same proxy.
func TestProxies_WrongTokensAreTheirSenders(t *testing.T) {
	t.Parallel()
	g, _, log := setup(t, func(c *Config) { c.FailuresPerMinute = 1 })
	var status int
	h := proxies(t).Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := g.Authenticate(r.Context(), "Bearer wrong", r.RemoteAddr)
		status = errorStatus(err)
	}))
	for i, tt := range []struct {
		remote, header string
		want           int
	}{
		{proxy, "203.0.113.5", 401},
		{proxy, "203.0.113.5", 429},
		{proxy, "198.51.100.1, 203.0.113.5", 429}, // claims another address
		{proxy, "203.0.113.6", 401},
		{proxy, "2001:db8:1:2::1", 401},
		{proxy, "2001:db8:1:2::2", 429}, // the same network
		{"203.0.113.7:1", "203.0.113.8", 401},
		{"203.0.113.7:1", "203.0.113.9", 429},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = tt.remote
		r.Header.Set("X-Forwarded-For", tt.header)
		if h.ServeHTTP(nil, r); status != tt.want {
			t.Errorf("request %d, %s by %s: %d, want %d", i+1, tt.header, tt.remote, status, tt.want)
		}
	}
	if text := log.String(); !strings.Contains(text, "203.0.113.5") || strings.Contains(text, "10.0.0.9") || strings.Contains(text, "198.51.100.1") {
		t.Errorf("the log must name who asked:\n%s", text)
	}
}

// The entry of the proxy is used, whatever the client sends before it.
func FuzzProxies_NobodySpoofs(f *testing.F) {
	for _, s := range []string{"", "10.1.1.1", `for="`, `for="\`, `for=1.2.3.4;x="`, ",,,,", "\t", `"`, `\"`, "for=_x", `a="b\\",c`, strings.Repeat(",", 100)} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, sent string, apart bool) {
		h := http.Header{}
		if apart {
			h.Add("X-Forwarded-For", sent)
			h.Add("X-Forwarded-For", "203.0.113.5")
		} else {
			h.Add("X-Forwarded-For", sent+", 203.0.113.5")
		}
		if got := seenRemote(t, proxies(t), proxy, h); got != "203.0.113.5" {
			t.Errorf("%q makes the request one of %s", h, got)
		}
	})
}
