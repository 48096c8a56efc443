package app

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

// checkRelays returns what is wrong with the settings of relays, which needs no
// database: nobody should learn of a wrong number when that is back.
func checkRelays(confs []relay.Config) error {
	var errs []error
	said := make(map[string]bool) // most settings are the same for each table
	for i := range confs {
		if err := confs[i].Validate(); err != nil && !said[err.Error()] {
			said[err.Error()] = true
			errs = append(errs, fmt.Errorf("table %s: %w", TableName(&confs[i]), InSettings(err)))
		}
	}
	return errors.Join(errs...)
}

// fieldName is a name of relay.Config in an error; names that users chose are quoted there.
var fieldName = regexp.MustCompile(`(^|[\s:])([A-Z][A-Za-z]+)`)

// settingOf is the setting that a field of relay.Config comes from, empty if none.
func settingOf(field string) string {
	key, _ := Settings.Key(SectionRelay, field)
	return key
}

// InSettings is an error of relay.Config, with the names of settings in the place of
// those of fields.
func InSettings(err error) error {
	text := fieldName.ReplaceAllStringFunc(err.Error(), func(found string) string {
		at := strings.IndexFunc(found, func(r rune) bool { return r >= 'A' && r <= 'Z' })
		if name := settingOf(found[at:]); name != "" {
			return found[:at] + name
		}
		return found
	})
	return errors.New(text)
}
