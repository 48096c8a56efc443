package settings

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// reference is a secret that is stored elsewhere, after its name in a list of name=value.
var reference = regexp.MustCompile(`(?s)^([\w-]+=)?(file|env):(.*)$`)

// Reveal replaces the references in secrets, file:PATH and env:NAME, by the text of the file or
// of the environment variable, without white space around it. An entry of a list may be
// name=file:PATH too; each line of an entry without a name is an entry. Without sections all
// references must be readable, with sections those in them: a file of several processes has
// secrets of the others. The error names setting and reference, and does not contain a secret.
func (fs Fields) Reveal(sections ...string) error {
	var errs []error
	for _, f := range fs {
		if !f.Secret {
			continue
		}
		if err := f.reveal(); err != nil && (len(sections) == 0 || slices.Contains(sections, f.Section)) {
			errs = append(errs, fmt.Errorf("%s (%s): %w", f.Key, f.Env(), err))
		}
	}
	return errors.Join(errs...)
}

// HasLiteral reports whether the setting contains a secret, not only references.
func (f Field) HasLiteral() bool {
	return f.Secret && slices.ContainsFunc(texts(f.value, f.tag), func(s string) bool { return s != "" && !reference.MatchString(s) })
}

func (f Field) reveal() error {
	if f.value.Kind() == reflect.String {
		if m := reference.FindStringSubmatch(f.value.String()); m == nil || m[1] != "" {
			return nil // names are for lists
		}
		_, text, err := revealSecret(f.value.String())
		if err == nil {
			f.value.SetString(text)
		}
		return err
	}
	var out []string
	for i, entry := range f.value.Interface().([]string) {
		name, text, err := revealSecret(entry)
		switch {
		case err != nil:
			return fmt.Errorf("entry %d: %w", i+1, err)
		case name != "" || text == entry:
			out = append(out, name+text)
			continue
		}
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				out = append(out, line)
			}
		}
	}
	f.value.Set(reflect.ValueOf(out).Convert(f.value.Type()))
	return nil
}

// revealSecret returns the value of a secret, after its name with "=" if that precedes a reference.
func revealSecret(secret string) (name, text string, err error) {
	m := reference.FindStringSubmatch(secret)
	if m == nil {
		return "", secret, nil
	}
	name, where := m[1], m[3]
	if m[2] == "env" {
		if text = strings.TrimSpace(os.Getenv(where)); text == "" {
			return "", "", fmt.Errorf("the environment variable %q is empty or not set", where)
		}
		return name, text, nil
	}
	b, err := os.ReadFile(where)
	if err != nil {
		return "", "", err
	}
	if text = strings.TrimSpace(string(b)); text == "" {
		return "", "", fmt.Errorf("the file %s is empty", where)
	}
	return name, text, nil
}
