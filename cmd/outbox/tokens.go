package main

import (
	"errors"
	"fmt"

	"github.com/go-viper/mapstructure/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// adminTokensKey is the key of the bearer tokens of the admin API: a list, so it
// has neither a flag nor an environment variable.
const adminTokensKey = "admin.tokens"

// tokensFrom reads the list of tokens of a configuration file. What the tokens
// themselves must be like, package access says.
func tokensFrom(key string, value any) ([]access.Token, error) {
	if value == nil {
		return nil, nil
	}
	var out []access.Token
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{Result: &out, TagName: "koanf", ErrorUnused: true})
	if err != nil {
		return nil, err
	}
	if err := d.Decode(value); err != nil {
		return nil, fmt.Errorf("%s: write a list of {name: …, role: …, hash: …}: %w", key, errors.Unwrap(err))
	}
	return out, nil
}
