package access

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// ForwardedHeader is the header in which proxies say who asked them.
type ForwardedHeader string

// The headers that Proxies reads.
const (
	// XForwardedFor is a list of addresses, each proxy's caller at its end.
	XForwardedFor ForwardedHeader = "x-forwarded-for"
	// Forwarded is that of RFC 7239.
	Forwarded ForwardedHeader = "forwarded"
)

// maxHops bounds how many proxies a request may have come through, and so what its
// headers may cost.
const maxHops = 16

// Proxies finds out who asked where proxies stand before a server. The zero value
// trusts none. It is safe for concurrent use.
//
// Anybody may send these headers, so only what a trusted proxy has added counts:
// they are read from their end, as long as who said so is trusted itself. One header
// alone is read, since a proxy that writes one passes the other on as it came.
type Proxies struct {
	trusted []netip.Prefix
	header  ForwardedHeader
}

// NewProxies returns those of the networks in CIDR notation, or single addresses,
// that write the header. Every problem is reported at once.
func NewProxies(networks []string, header ForwardedHeader) (Proxies, error) {
	p := Proxies{header: ForwardedHeader(strings.ToLower(string(header)))}
	var errs []error
	if p.header != XForwardedFor && p.header != Forwarded {
		errs = append(errs, fmt.Errorf("header %q: use %s or %s, whichever the proxies write", header, XForwardedFor, Forwarded))
	}
	for _, s := range networks {
		n, err := network(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("trusted proxies %q: %w", s, err))
			continue
		}
		p.trusted = append(p.trusted, n)
	}
	return p, errors.Join(errs...)
}

func network(s string) (netip.Prefix, error) {
	n, err := netip.ParsePrefix(s)
	if a, bad := netip.ParseAddr(s); bad == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	switch {
	case err != nil || n.Addr().Is4In6():
		return netip.Prefix{}, errors.New("write a network such as 10.0.0.0/8 or 2001:db8::/32, or an address")
	case n.Bits() == 0:
		return netip.Prefix{}, errors.New("trusts everybody, so that a caller could name any address as its own; write the networks of the proxies alone")
	case n != n.Masked():
		return netip.Prefix{}, fmt.Errorf("has bits beyond its length; write %s", n.Masked())
	}
	return n, nil
}

// Wrap has next see who asked as the request's RemoteAddr: an address without a
// port where a proxy says who, and otherwise what it was. All that counts, logs or
// judges by address belongs behind it.
func (p Proxies) Wrap(next http.Handler) http.Handler {
	if len(p.trusted) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !p.trusts(clean(peer.Addr())) {
			next.ServeHTTP(w, r)
			return
		}
		behind := *r
		behind.RemoteAddr = p.caller(clean(peer.Addr()), r.Header).String()
		next.ServeHTTP(w, &behind)
	})
}

// caller follows the header from its end, from one trusted proxy to the one before
// it. Who is not trusted is the caller; where a proxy does not say whom it heard, it
// stands for them all.
func (p Proxies) caller(at netip.Addr, h http.Header) netip.Addr {
	said := elements{lines: h.Values(string(p.header)), quotes: p.header == Forwarded}
	for range maxHops {
		if !p.trusts(at) {
			return at
		}
		e, ok := said.last()
		if ok && p.header == Forwarded {
			e, ok = forwardedFor(e)
		}
		if !ok {
			return at
		}
		before, ok := node(e)
		if !ok {
			return at
		}
		at = before
	}
	return at
}

func (p Proxies) trusts(a netip.Addr) bool {
	for _, n := range p.trusted {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// clean is an address as networks are compared with it.
func clean(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// node reads the address of who asked, with or without a port: 192.0.2.1,
// 192.0.2.1:80, 2001:db8::1, [2001:db8::1] or [2001:db8::1]:80. False for what hides
// it, as RFC 7239 lets a proxy do, and for what is none.
func node(s string) (netip.Addr, bool) {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	} else if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		s = s[1 : len(s)-1]
	}
	a, err := netip.ParseAddr(s)
	return clean(a), err == nil && a.Zone() == ""
}

// elements takes a list header apart from its end, no further than it is asked.
// What a caller wrote at its beginning, a quotation mark too many, say, does not
// change how what stands behind that is read.
type elements struct {
	lines  []string // not begun yet
	rest   string   // of the line before those
	quotes bool     // within quotation marks a comma is text
}

// last takes the last element that is not empty, as lists may have; false: there
// is none.
func (e *elements) last() (string, bool) {
	for range maxHops {
		if e.rest == "" {
			if len(e.lines) == 0 {
				return "", false
			}
			end := len(e.lines) - 1
			e.rest, e.lines = e.lines[end], e.lines[:end]
		}
		i := lastOutside(e.rest, ',', e.quotes)
		s := strings.Trim(e.rest[i+1:], " \t")
		e.rest = e.rest[:max(0, i)]
		if s != "" {
			return s, true
		}
	}
	return "", false
}

// lastOutside is where c stands last outside of quotation marks, or -1.
func lastOutside(s string, c byte, quotes bool) int {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case quotes && s[i] == '"' && !escaped(s, i):
			quoted = !quoted
		case s[i] == c && !quoted:
			return i
		}
	}
	return -1
}

// escaped tells whether a backslash takes its meaning from s[i].
func escaped(s string, i int) bool {
	n := 0
	for ; i > n && s[i-1-n] == '\\'; n++ {
	}
	return n%2 == 1
}

// forwardedFor is the value of for of an element of Forwarded: for="[::1]:80";proto=https.
// False if there is none, or more than one.
func forwardedFor(element string) (string, bool) {
	value, found := "", false
	for rest := element; rest != ""; {
		pair := rest
		i := lastOutside(rest, ';', true)
		if rest = ""; i >= 0 {
			pair, rest = pair[i+1:], pair[:i]
		}
		name, v, ok := strings.Cut(strings.Trim(pair, " \t"), "=")
		if !ok || !strings.EqualFold(name, "for") {
			continue
		}
		if found {
			return "", false
		}
		value, found = v, true
	}
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		value = value[1 : len(value)-1] // an address has nothing to escape
	}
	return value, found
}
