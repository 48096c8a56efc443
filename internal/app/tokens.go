package app

import (
	"errors"
	"fmt"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// readTokens reads the entries of the setting key.
func readTokens(key string, entries []string) ([]access.Token, error) {
	var out []access.Token
	var errs []error
	for i, entry := range entries {
		t, err := access.ParseToken(entry)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: entry %d: %w", key, i+1, err))
		}
		out = append(out, t)
	}
	return out, errors.Join(errs...)
}
