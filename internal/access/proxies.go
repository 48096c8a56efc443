package access

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// forwardedHeader is a list of addresses; each proxy appends its client.
const forwardedHeader = "X-Forwarded-For"

// maxHops bounds the number of proxies of a request, and so the cost of its headers.
const maxHops = 16

// Proxies determines the client address of requests through reverse proxies. The zero
// value trusts none. It is safe for concurrent use.
//
// Any client may send X-Forwarded-For, so only the entries of trusted proxies are used: the
// header is read from its end for as long as the sender of an entry is trusted. Forwarded
// (RFC 7239) is not read, because a proxy that writes one header passes the other on
// unchanged.
type Proxies struct{ trusted []netip.Prefix }

// NewProxies returns the Proxies in the networks, in CIDR notation or single addresses,
// that write X-Forwarded-For. Its error contains every problem.
func NewProxies(networks []string) (Proxies, error) {
	var p Proxies
	var errs []error
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
	list := elements{lines: h.Values(forwardedHeader)}
	for range maxHops {
		if !p.trusts(at) {
			return at
		}
		e, ok := list.last()
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
// 2001:db8::1, [2001:db8::1] or [2001:db8::1]:80. It returns false for an invalid one.
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
// wrote at its beginning does not change how the rest is parsed.
type elements struct {
	lines []string // not started yet
	rest  string   // of the current line
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
		i := strings.LastIndexByte(e.rest, ',')
		s := strings.Trim(e.rest[i+1:], " \t")
		e.rest = e.rest[:max(0, i)]
		if s != "" {
			return s, true
		}
	}
	return "", false
}
