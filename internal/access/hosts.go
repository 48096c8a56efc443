package access

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
)

// Hosts is the list of host names that a server without tokens accepts. It protects
// against DNS rebinding: a browser sends the name of the page, which an attacker can
// resolve to any address but cannot make equal to a name of this list.
//
// IP addresses and localhost are always allowed: no DNS answer changes what a browser
// connects to for them. The zero value allows nothing else.
type Hosts struct{ names map[string]bool }

var hostForm = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,62}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,62}[a-z0-9_])?)*$`)

// NewHosts returns the list of names and the host of addr, the address that the server
// listens on. It reports every invalid name.
func NewHosts(addr string, names []string) (*Hosts, error) {
	h := &Hosts{names: make(map[string]bool)}
	if host, _, err := net.SplitHostPort(addr); err == nil && host != "" {
		h.names[plainHost(host)] = true
	}
	var errs []error
	for _, name := range names {
		plain := plainHost(strings.TrimSpace(name))
		if len(plain) > 253 || !hostForm.MatchString(plain) {
			errs = append(errs, fmt.Errorf("host %q: must be a name without scheme, port and wildcard, such as orders.example.com", clip(name)))
			continue
		}
		h.names[plain] = true
	}
	return h, errors.Join(errs...)
}

// Allow reports whether the server accepts a Host header, with or without a port.
func (h *Hosts) Allow(header string) bool {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	host = plainHost(host)
	return host == "localhost" || h.names[host]
}

// plainHost returns a name in the form for comparison: lower case, without the dot of the
// root.
func plainHost(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }
