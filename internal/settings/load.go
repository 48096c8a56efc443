package settings

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// AddFlags adds the flags of the settings in the sections, with their current values
// as defaults. Numbers and durations are checked by Load, with all others.
func (fs Fields) AddFlags(flags *pflag.FlagSet, sections ...string) {
	for _, f := range fs {
		if f.Flag() != "" && slices.Contains(sections, f.Section) {
			f.addFlag(flags)
			section, _, _ := strings.Cut(f.Key, ".")
			if err := flags.SetAnnotation(f.Flag(), cli.GroupAnnotation, []string{section}); err != nil {
				panic(err) // the flag is defined above
			}
		}
	}
}

// readBy returns the settings that a command with these flags reads: the settings of their sections.
func (fs Fields) readBy(flags *pflag.FlagSet) (read Fields) {
	sections := make(map[string]bool)
	for _, f := range fs {
		if f.Flag() != "" && flags.Lookup(f.Flag()) != nil {
			sections[f.Section] = true
		}
	}
	for _, f := range fs {
		if sections[f.Section] {
			read = append(read, f)
		}
	}
	return read
}

// keys returns the keys of the settings.
func (fs Fields) keys() []string {
	keys := make([]string, len(fs))
	for i, f := range fs {
		keys[i] = f.Key
	}
	return keys
}

func (f Field) addFlag(flags *pflag.FlagSet) {
	name, usage := f.Flag(), f.Usage+" ["+f.Env()+"]"
	switch v := f.Value().(type) {
	case string:
		flags.String(name, v, usage)
	case bool:
		flags.Bool(name, v, usage)
	default:
		if k := f.value.Kind(); k == reflect.Slice || k == reflect.Map {
			flags.StringSlice(name, texts(f.value, f.tag), usage)
			return
		}
		flags.Var(&flagText{text: f.Text(), kind: f.kind()}, name, usage)
	}
}

// kind returns the type of the setting in --help.
func (f Field) kind() string {
	switch v := f.value; {
	case v.Type() == durationType:
		return "duration"
	case v.CanInt():
		return "int"
	}
	return "float"
}

// flagText is the value of a flag whose text Load parses.
type flagText struct{ text, kind string }

// String implements pflag.Value.
func (t *flagText) String() string { return t.text }

// Set implements pflag.Value.
func (t *flagText) Set(s string) error { t.text = s; return nil }

// Type implements pflag.Value.
func (t *flagText) Type() string { return t.kind }

// Load sets the settings: flag over environment over file over the current value. file
// may be empty. overridden are the keys of the file that the environment overrides. The error
// lists all problems, each with the name of its setting.
func (fs Fields) Load(file string, lookup func(string) (string, bool), flags *pflag.FlagSet) (overridden []string, err error) {
	var errs []error
	var inFile map[string]bool
	if file != "" {
		inFile, errs = fs.readFile(file, flags)
	}
	for _, f := range fs {
		if env := f.Env(); env != "" {
			if text, ok := lookup(env); ok {
				if inFile[f.Key] {
					overridden = append(overridden, f.Key)
				}
				if err := parse(f.value, text, f.tag); err != nil {
					errs = append(errs, fmt.Errorf("%s: %s: %w", env, f.Key, err))
				}
			}
		}
		flag := flags.Lookup(f.Flag())
		if flag == nil || !flag.Changed {
			continue
		}
		var err error
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			err = parseList(f.value, list.GetSlice(), f.tag)
		} else {
			err = parse(f.value, flag.Value.String(), f.tag)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %s: %w", flag.Name, f.Key, err))
		}
	}
	return overridden, errors.Join(errs...)
}

// ofService matches the ends of the variables that Kubernetes sets for a service: one called
// outbox-relay creates OUTBOX_RELAY_PORT and others, which are not settings.
// https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables
var ofService = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// Strangers returns the names of the variables in environ, as of os.Environ, that have the
// prefix of settings and belong neither to a setting nor to a service of Kubernetes.
func (fs Fields) Strangers(environ []string) []string {
	var names []string
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, Prefix) && !ofService.MatchString(name) &&
			!slices.ContainsFunc(fs, func(f Field) bool { return f.Env() == name }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
