package app

import (
	"errors"
	"fmt"

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

// InSettings is an error of relay.Config.Validate or relay.New, with the names of settings
// in the place of those of fields.
func InSettings(err error) error {
	switch e := err.(type) {
	case *relay.FieldError:
		if key, ok := Settings.Key(SectionRelay, e.Field); ok {
			return fmt.Errorf("%s: %w", key, e.Err)
		}
	case interface{ Unwrap() []error }:
		var errs []error
		for _, one := range e.Unwrap() {
			errs = append(errs, InSettings(one))
		}
		return errors.Join(errs...)
	case interface{ Unwrap() error }:
		if in := e.Unwrap(); errors.As(in, new(*relay.FieldError)) {
			return InSettings(in)
		}
	}
	return err
}
