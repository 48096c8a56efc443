package app

import (
	"errors"
	"fmt"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

// checkRelays returns the errors in the settings of relays. It needs no database, so that a
// wrong setting is reported before the database is connected.
func checkRelays(confs []relay.Config) error {
	var errs []error
	reported := make(map[string]bool) // tables share most settings
	for i := range confs {
		if err := confs[i].Validate(); err != nil && !reported[err.Error()] {
			reported[err.Error()] = true
			errs = append(errs, fmt.Errorf("table %s: %w", TableName(&confs[i]), InSettings(err)))
		}
	}
	return errors.Join(errs...)
}

// InSettings returns an error of relay.Config.Validate or relay.New with the names of settings
// instead of fields.
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
