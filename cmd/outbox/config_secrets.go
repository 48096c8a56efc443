package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/scylla-outbox/scylla-outbox/notify"
)

// secret is a field of the configuration that may be given as file:PATH or env:NAME.
// Targets and webhook secrets are not among them: package notify reads them itself, by
// the same notify.Reveal.
type secret struct {
	section section
	name    string
	value   *string
	entries *[]string // instead of value
}

func (c *config) secrets() []secret {
	return []secret{
		{section: sectionScylla, name: "password", value: &c.Scylla.Password},
		{section: sectionKafka, name: "password", value: &c.Kafka.Password},
		{section: sectionHTTP, name: "tokens", entries: &c.HTTP.Tokens},
		{section: sectionHTTP, name: "hint_key", value: &c.HTTP.HintKey},
		{section: sectionAdminAPI, name: "tokens", entries: &c.Admin.Tokens},
		{section: sectionRelay, name: "hint_key", value: &c.Relay.HintKey},
	}
}

// revealSecrets replaces file:PATH and env:NAME by what is there. Of a section that the
// command does not use, a secret that cannot be read is left empty: processes share a
// configuration file, not the files with each other's secrets.
func (c *config) revealSecrets(flags *pflag.FlagSet) error {
	var errs []error
	for _, s := range c.secrets() {
		err := s.reveal()
		switch {
		case err == nil:
		case usesSection(flags, s.section):
			errs = append(errs, fmt.Errorf("%s.%s: %w", s.section.name(), s.name, err))
		case s.entries != nil:
			*s.entries = nil // reveal has emptied a value
		}
	}
	return errors.Join(errs...)
}

func (s secret) reveal() (err error) {
	if s.value != nil {
		*s.value, err = notify.Reveal(*s.value)
		return err
	}
	var out []string
	for _, entry := range *s.entries {
		if strings.Contains(entry, ":sha256:") { // the entry itself, of somebody called file or env, too
			out = append(out, entry)
			continue
		}
		text, err := notify.Reveal(entry)
		if err != nil {
			return err
		}
		for _, one := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' || r == ',' }) {
			if one = strings.TrimSpace(one); one != "" {
				out = append(out, one)
			}
		}
	}
	*s.entries = out
	return nil
}

// usesSection reports whether a command has the flags of a section.
func usesSection(flags *pflag.FlagSet, sec section) bool {
	for _, s := range settings {
		if s.Section == sec && !s.Secret && flags.Lookup(s.flag()) != nil {
			return true
		}
	}
	return false
}
