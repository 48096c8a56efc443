package access

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const proxy = "10.0.0.9:4711" // a trusted one

func proxies(t testing.TB, header ForwardedHeader, networks ...string) Proxies {
	t.Helper()
	if len(networks) == 0 {
		networks = []string{"10.0.0.0/8", "fd00::/8", "192.0.2.7"}
	}
	p, err := NewProxies(networks, header)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// remoteOf returns the RemoteAddr that a handler behind p receives.
func remoteOf(t testing.TB, p Proxies, remote string, header http.Header) (seen string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.RemoteAddr, r.Header = remote, header
	p.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.RemoteAddr })).ServeHTTP(nil, r)
	if r.RemoteAddr != remote {
		t.Errorf("the request that came in was changed: %q", r.RemoteAddr)
	}
	return seen
}

func TestProxies_WhoAsked(t *testing.T) {
	t.Parallel()
	type lines []string
	for name, tt := range map[string]struct {
		header ForwardedHeader
		remote string // default proxy
		lines  lines
		want   string
	}{
		"no proxy between":           {XForwardedFor, "203.0.113.5:80", nil, "203.0.113.5:80"},
		"a stranger makes one up":    {XForwardedFor, "203.0.113.5:80", lines{"198.51.100.1"}, "203.0.113.5:80"},
		"the proxy itself":           {XForwardedFor, "", nil, "10.0.0.9"},
		"behind one":                 {XForwardedFor, "", lines{"203.0.113.5"}, "203.0.113.5"},
		"with a port":                {XForwardedFor, "", lines{"203.0.113.5:5123"}, "203.0.113.5"},
		"IPv6":                       {XForwardedFor, "", lines{"2001:db8::5"}, "2001:db8::5"},
		"IPv6 in brackets":           {XForwardedFor, "", lines{"[2001:db8::5]"}, "2001:db8::5"},
		"IPv6 with a port":           {XForwardedFor, "", lines{"[2001:db8::5]:5123"}, "2001:db8::5"},
		"IPv4 as IPv6":               {XForwardedFor, "", lines{"::ffff:203.0.113.5"}, "203.0.113.5"},
		"through two":                {XForwardedFor, "", lines{"203.0.113.5, 10.1.1.1"}, "203.0.113.5"},
		"through a single address":   {XForwardedFor, "", lines{"203.0.113.5, 192.0.2.7"}, "203.0.113.5"},
		"through one of IPv6":        {XForwardedFor, "[fd00::1]:80", lines{"203.0.113.5,fd00::2"}, "203.0.113.5"},
		"the proxy as IPv4 in IPv6":  {XForwardedFor, "[::ffff:10.0.0.9]:80", lines{"203.0.113.5"}, "203.0.113.5"},
		"the proxy on a link":        {XForwardedFor, "[fd00::1%eth0]:80", lines{"203.0.113.5"}, "203.0.113.5"},
		"in several lines":           {XForwardedFor, "", lines{"198.51.100.1", "203.0.113.5", "10.1.1.1"}, "203.0.113.5"},
		"spoofed":                    {XForwardedFor, "", lines{"198.51.100.1, 203.0.113.5"}, "203.0.113.5"},
		"spoofed as a proxy":         {XForwardedFor, "", lines{"198.51.100.1, 10.1.1.1, 203.0.113.5"}, "203.0.113.5"},
		"all are proxies":            {XForwardedFor, "", lines{"10.1.1.1, 10.1.1.2"}, "10.1.1.1"},
		"hidden":                     {XForwardedFor, "", lines{"198.51.100.1, unknown, 10.1.1.1"}, "10.1.1.1"},
		"an address on a link":       {XForwardedFor, "", lines{"fe80::1%eth0"}, "10.0.0.9"},
		"a name":                     {XForwardedFor, "", lines{"localhost"}, "10.0.0.9"},
		"nothing but commas":         {XForwardedFor, "", lines{" , ,"}, "10.0.0.9"},
		"an empty element":           {XForwardedFor, "", lines{"203.0.113.5, ,"}, "203.0.113.5"},
		"an empty line":              {XForwardedFor, "", lines{"203.0.113.5", ""}, "203.0.113.5"},
		"a quotation mark":           {XForwardedFor, "", lines{`", 203.0.113.5`}, "203.0.113.5"},
		"Forwarded":                  {Forwarded, "", lines{"for=203.0.113.5"}, "203.0.113.5"},
		"Forwarded, all of it":       {Forwarded, "", lines{`by=10.0.0.9;FOR="203.0.113.5:80"; proto=https;host=x`}, "203.0.113.5"},
		"Forwarded, IPv6":            {Forwarded, "", lines{`for="[2001:db8::5]:4711"`}, "2001:db8::5"},
		"Forwarded, a comma in text": {Forwarded, "", lines{`for=198.51.100.1, for=203.0.113.5;host="a, for=10.1.1.1;b"`}, "203.0.113.5"},
		"Forwarded, an escape":       {Forwarded, "", lines{`for=198.51.100.1, for=203.0.113.5;host="a\", for=10.1.1.1"`}, "203.0.113.5"},
		"Forwarded, spoofed":         {Forwarded, "", lines{`for=198.51.100.1, for="203.0.113.5", for=10.1.1.1`}, "203.0.113.5"},
		"Forwarded, open text":       {Forwarded, "", lines{`for="198.51.100.1, for=203.0.113.5`}, "203.0.113.5"},
		"Forwarded, open line":       {Forwarded, "", lines{`for="198.51.100.1`, `for=203.0.113.5`}, "203.0.113.5"},
		"Forwarded, hidden":          {Forwarded, "", lines{`for=198.51.100.1, for=_gazonk`}, "10.0.0.9"},
		"Forwarded, not said":        {Forwarded, "", lines{`for=198.51.100.1, proto=https`}, "10.0.0.9"},
		"Forwarded, said twice":      {Forwarded, "", lines{`for=198.51.100.1;for=203.0.113.5`}, "10.0.0.9"},
	} {
		other := map[ForwardedHeader]string{XForwardedFor: "Forwarded", Forwarded: "X-Forwarded-For"}[tt.header]
		header := http.Header{http.CanonicalHeaderKey(string(tt.header)): tt.lines, other: {"198.51.100.77", "for=198.51.100.77"}}
		if tt.remote == "" {
			tt.remote = proxy
		}
		if got := remoteOf(t, proxies(t, tt.header), tt.remote, header); got != tt.want {
			t.Errorf("%s: %q by %s is %s, want %s", name, tt.lines, tt.remote, got, tt.want)
		}
	}
	if got := remoteOf(t, Proxies{}, proxy, http.Header{"X-Forwarded-For": {"198.51.100.1"}}); got != proxy {
		t.Errorf("nobody is trusted, and the request is from %s", got)
	}
}

// Long lists are not read completely and are cheap.
func TestProxies_HostileHeadersAreCheap(t *testing.T) {
	const size = 32 << 10
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for name, tt := range map[string]struct {
		header ForwardedHeader
		value  string
		want   string
	}{
		"proxies without end": {XForwardedFor, "198.51.100.1" + fill(",10.1.1.1"), "10.1.1.1"},
		"commas":              {XForwardedFor, "198.51.100.1" + fill(","), "10.0.0.9"},
		"one long word":       {XForwardedFor, fill("1"), "10.0.0.9"},
		"dots":                {XForwardedFor, fill("1."), "10.0.0.9"},
		"colons":              {XForwardedFor, fill(":"), "10.0.0.9"},
		"quotation marks":     {Forwarded, fill(`"`), "10.0.0.9"},
		"escapes":             {Forwarded, fill(`\`) + `"`, "10.0.0.9"},
		"escaped marks":       {Forwarded, fill(`\"`), "10.0.0.9"},
		"semicolons":          {Forwarded, "for=198.51.100.1" + fill(";"), "198.51.100.1"},
		"for without end":     {Forwarded, fill("for=10.1.1.1;"), "10.0.0.9"},
	} {
		p, h := proxies(t, tt.header), http.Header{}
		h.Set(string(tt.header), tt.value)
		if got := remoteOf(t, p, proxy, h); got != tt.want {
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
	_, err := NewProxies([]string{"10.0.0.1/8", "0.0.0.0/0", "::/0", "::ffff:10.0.0.0/104", "proxy", "fe80::1%eth0", "10.0.0.0/33"}, "X-Real-IP")
	for _, want := range []string{
		`"X-Real-IP": use x-forwarded-for or forwarded`, "use 10.0.0.0/8", `"0.0.0.0/0": would trust every address`, `"::/0": would trust every address`,
		`"::ffff:10.0.0.0/104": must be an address or a network`, `"proxy": must be an address or a network`, `"fe80::1%eth0": must be an address or a network`, `"10.0.0.0/33": must be an address or a network`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewProxies() = %v, want it to say %s", err, want)
		}
	}
	if _, err := NewProxies([]string{"10.0.0.0/8", "::1", "::ffff:10.0.0.1"}, "X-Forwarded-For"); err != nil {
		t.Error(err)
	}
}

// Invalid tokens of one client do not block the JWTs of others behind the same proxy.
func TestProxies_WrongTokensAreTheirSenders(t *testing.T) {
	t.Parallel()
	g, _, log := setup(t, func(c *Config) { c.FailuresPerMinute = 1 })
	var status int
	h := proxies(t, XForwardedFor).Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := g.Authenticate(r.Context(), "Bearer wrong", r.RemoteAddr)
		status = statusOf(err)
	}))
	for i, tt := range []struct {
		remote, header string
		want           int
	}{
		{proxy, "203.0.113.5", 401},
		{proxy, "203.0.113.5", 429},
		{proxy, "198.51.100.1, 203.0.113.5", 429}, // says to be somebody else
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
		for header, said := range map[ForwardedHeader]string{XForwardedFor: "203.0.113.5", Forwarded: `for="203.0.113.5:80";proto=http`} {
			h := http.Header{}
			if apart {
				h.Add(string(header), sent)
				h.Add(string(header), said)
			} else {
				h.Add(string(header), sent+", "+said)
			}
			if got := remoteOf(t, proxies(t, header), proxy, h); got != "203.0.113.5" {
				t.Errorf("%q makes the request one of %s", h, got)
			}
		}
	})
}
