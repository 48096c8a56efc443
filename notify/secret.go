package notify

import (
	"errors"
	"net/url"
	"strings"
)

// minSecret is the minimum length of a part of a URL that is redacted; shorter
// parts would redact ordinary words.
const minSecret = 4

// redactor removes a URL's parts from the text of errors.
type redactor struct{ replacer *strings.Replacer }

// newRedactor treats every part of a URL except its scheme as secret, because
// services differ in the secret part.
func newRedactor(raw string) redactor {
	parts := []string{raw}
	add := func(s string) {
		if len(s) >= minSecret {
			parts = append(parts, s, url.PathEscape(s), url.QueryEscape(s))
		}
	}
	if _, rest, ok := strings.Cut(raw, "://"); ok {
		add(rest)
		for _, p := range strings.FieldsFunc(rest, func(r rune) bool { return strings.ContainsRune("/:@?&=#,", r) }) {
			add(p)
		}
	}
	if u, err := url.Parse(raw); err == nil {
		if u.User != nil {
			add(u.User.Username())
			p, _ := u.User.Password()
			add(p)
		}
		add(u.Path)
		for _, p := range strings.Split(u.Path, "/") {
			add(p)
		}
		for _, vs := range u.Query() {
			for _, v := range vs {
				add(v)
			}
		}
	}
	// The longest first: a part of one may be another.
	var pairs []string
	for _, p := range byLength(parts) {
		pairs = append(pairs, p, "***")
	}
	return redactor{strings.NewReplacer(pairs...)}
}

func byLength(parts []string) []string {
	seen := make(map[string]bool)
	var out []string
	for _, p := range parts {
		if p == "" || seen[p] {
			continue
		}
		seen[p] = true
		i := 0
		for i < len(out) && len(out[i]) >= len(p) {
			i++
		}
		out = append(out[:i], append([]string{p}, out[i:]...)...)
	}
	return out
}

// err returns an error without secrets, with the marks of Permanent, Unavailable and
// After; it wraps nothing that could contain secrets.
func (r redactor) err(err error) error {
	if err == nil {
		return nil
	}
	var u *url.Error
	text := err.Error()
	if errors.As(err, &u) { // it contains the requested URL, which may differ
		text = strings.ReplaceAll(text, u.URL, "***")
	}
	out := errors.New(r.replacer.Replace(text))
	if IsPermanent(err) {
		out = Permanent(out)
	}
	if IsUnavailable(err) {
		out = Unavailable(out)
	}
	if wait := RequestedWait(err); wait > 0 {
		out = After(out, wait)
	}
	return out
}
