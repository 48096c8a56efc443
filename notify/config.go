package notify

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// targetName is the pattern of target names, which are label values.
var targetName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,40}$`)

// webhookScheme is before the URL of our own signed webhook.
const webhookScheme = "webhook+"

// ParseTargets parses targets of the form "name=URL". webhook+https://… is a
// signed webhook, which needs the secrets; any other URL is one of shoutrrr.
// The error contains every problem, without the URLs.
func ParseTargets(targets, webhookSecrets []string) (map[string]Target, error) {
	out := make(map[string]Target)
	var errs []error
	var keys Keys
	if len(webhookSecrets) > 0 {
		var err error
		if keys, err = ParseKeys(webhookSecrets...); err != nil {
			errs = append(errs, err)
		}
	}
	for i, pair := range targets {
		name, raw, ok := strings.Cut(pair, "=")
		if !ok || !targetName.MatchString(name) {
			errs = append(errs, fmt.Errorf("target %d of %d: use name=URL, with letters, digits, - and _ in the name", i+1, len(targets)))
			continue
		}
		if _, twice := out[name]; twice {
			errs = append(errs, fmt.Errorf("target %s: the name is taken", name))
			continue
		}
		t, err := parseTarget(raw, keys)
		if err != nil {
			errs = append(errs, fmt.Errorf("target %s: %w", name, err))
			continue
		}
		out[name] = t
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

func parseTarget(raw string, keys Keys) (Target, error) {
	if rest, ok := strings.CutPrefix(raw, webhookScheme); ok {
		return NewWebhook(rest, keys)
	}
	return NewURL(raw)
}
