package access

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// ForwardedHeader is the header in which proxies report the client address.
type ForwardedHeader string

// The headers that Proxies reads.
const (
	// XForwardedFor is a list of addresses; each proxy appends its client.
	XForwardedFor ForwardedHeader = "x-forwarded-for"
	// Forwarded is that of RFC 7239.
	Forwarded ForwardedHeader = "forwarded"
)

// maxHops bounds the number of proxies of a request, and so the cost of its headers.
const maxHops = 16

// Proxies determines the client address of requests through reverse proxies. The zero
// value trusts none. It is safe for concurrent use.
//
// Any client may send these headers, so only the entries of trusted proxies are used: the
// header is read from its end for as long as the sender of an entry is trusted. Only one
// header is read, because a proxy that writes one forwards the other unchanged.
type Proxies struct {
	trusted []netip.Prefix
	header  ForwardedHeader
}

// NewProxies returns the Proxies in the networks, in CIDR notation or single addresses,
// that write the header. Its error contains every problem.
func NewProxies(networks []string, header ForwardedHeader) (Proxies, error) {
	p := Proxies{header: ForwardedHeader(strings.ToLower(string(header)))}
	var errs []error
	if p.header != XForwardedFor && p.header != Forwarded {
		errs = append(errs, fmt.Errorf("header %q: use %s or %s, the one that the proxies write", header, XForwardedFor, Forwarded))
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
		return netip.Prefix{}, errors.New("must be an address or a network such as 10.0.0.0/8 or 2001:db8::/32")
	case n.Bits() == 0:
		return netip.Prefix{}, errors.New("would trust every address, so that callers could forge theirs; use only the networks of the proxies")
	case n != n.Masked():
		return netip.Prefix{}, fmt.Errorf("has bits beyond its length; use %s", n.Masked())
	}
	return n, nil
}

// Wrap sets the client address as the RemoteAddr of the request for next, without a port
// if a proxy reported it. Handlers that limit, log or authorize by address belong behind
// it.
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

// caller follows the header from its end, from each trusted proxy to its client. The
// first untrusted address is the caller; a proxy that reports no client is the caller
// itself.
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

// clean returns an address in the form for comparison with networks.
func clean(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// node parses a client address with or without a port: 192.0.2.1, 192.0.2.1:80,
// 2001:db8::1, [2001:db8::1] or [2001:db8::1]:80. It returns false for an obfuscated
// address of RFC 7239 and for an invalid one.
func node(s string) (netip.Addr, bool) {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	} else if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		s = s[1 : len(s)-1]
	}
	a, err := netip.ParseAddr(s)
	return clean(a), err == nil && a.Zone() == ""
}

// elements parses a list header from its end, only as far as requested. What a client
// wrote at its beginning, such as an unpaired quotation mark, does not change how the
// rest is parsed.
type elements struct {
	lines  []string // not started yet
	rest   string   // of the current line
	quotes bool     // within quotation marks a comma is text
}

// last removes and returns the last element that is not empty; false if there is none.
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

// lastOutside returns the last index of c outside of quotation marks, or -1.
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

// escaped reports whether s[i] is escaped by a backslash.
func escaped(s string, i int) bool {
	n := 0
	for ; i > n && s[i-1-n] == '\\'; n++ {
	}
	return n%2 == 1
}

// forwardedFor returns the value of for in an element of Forwarded, such as
// for="[::1]:80";proto=https. It returns false if there is none or more than one.
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
		value = value[1 : len(value)-1] // an address needs no escapes
	}
	return value, found
}
