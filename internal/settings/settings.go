// Package settings derives a program's settings from the fields of a struct: key in
// the file, flag, environment variable, default, bounds and documentation.
//
// A setting is an exported field with the tag setting:"name". A struct with that tag
// is a section, whose name precedes the ones of its settings; an embedded struct without
// it belongs to the struct around it. The further tags are:
//
//	usage    one line for --help and the documentation
//	default  the value as text; without the tag the field's own value is the default
//	min, max least and greatest number or duration
//	oneof    the allowed words, separated by spaces
//	off      the value of the word off; 0 is then refused for other
//	         numbers than durations, for which 0 is off too
//	secret   "true": the setting has no flag, because the process list shows flags, and may
//	         be a reference, see Fields.Reveal
//	flag     name of the flag, where it differs from the key
//	section  group of flags, where it differs from the section's name
//	field    names of other fields that take their value from the setting
//
// Settings are strings, booleans, numbers, durations, lists of them, maps of strings,
// and lists of structs. The last are in the file only.
//
// The package does not know any setting, and does not check one against another.
package settings

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Prefix begins the name of each environment variable.
const Prefix = "OUTBOX_"

// Field is one setting.
type Field struct {
	// Key is its name in the file, with its section: relay.attempt_timeout.
	Key string
	// Section groups flags.
	Section string
	// Usage describes it in one line.
	Usage string
	// Secret settings have no flag.
	Secret bool
	// Production settings have no default that fits an installation: their tag production is true.
	Production bool

	name  string // of the Go field
	tag   reflect.StructTag
	value reflect.Value
}

// Fields are all settings of a struct, in its order.
type Fields []Field

// Of returns the settings of the struct that config points to, and sets those with the
// tag default. It panics on a wrong tag.
func Of(config any) Fields {
	var out Fields
	out.collect(reflect.ValueOf(config).Elem(), "", "")
	return out
}

func (fs *Fields) collect(v reflect.Value, path, section string) {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		name, named := f.Tag.Lookup("setting")
		key := join(path, name)
		switch group := f.Tag.Get("section"); {
		case named && value.Kind() == reflect.Struct:
			fs.collect(value, key, cmp.Or(group, name))
		case named:
			x := Field{
				Key: key, Section: cmp.Or(group, section), Usage: f.Tag.Get("usage"), Secret: f.Tag.Get("secret") == "true", Production: f.Tag.Get("production") == "true",
				name: f.Name, tag: f.Tag, value: value,
			}
			if text, ok := f.Tag.Lookup("default"); ok {
				if !value.IsZero() {
					panic("settings: " + key + " has two defaults")
				}
				if err := parse(value, text, f.Tag); err != nil {
					panic(fmt.Sprintf("settings: default of %s: %v", key, err))
				}
			}
			*fs = append(*fs, x)
		case f.Anonymous && value.Kind() == reflect.Struct:
			fs.collect(value, path, cmp.Or(group, section))
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// FileOnly reports whether the setting is a list of structs, which has no flag and no
// environment variable.
func (f Field) FileOnly() bool {
	return f.value.Kind() == reflect.Slice && f.value.Type().Elem().Kind() == reflect.Struct
}

// Flag is the name of its flag without the dashes before it; secrets have none.
func (f Field) Flag() string {
	if f.Secret || f.FileOnly() {
		return ""
	}
	return cmp.Or(f.tag.Get("flag"), strings.NewReplacer(".", "-", "_", "-").Replace(f.Key))
}

// Env is its environment variable, empty if it is in the file only.
func (f Field) Env() string {
	if f.FileOnly() {
		return ""
	}
	return Prefix + strings.ToUpper(strings.ReplaceAll(f.Key, ".", "_"))
}

// Value is its current value: of the fields of a struct of defaults the default.
func (f Field) Value() any { return f.value.Interface() }

// Text is the value as the file would have it.
func (f Field) Text() string { return strings.Join(texts(f.value, f.tag), ",") }

// texts are the entries of a list, or the value alone.
func texts(v reflect.Value, tag reflect.StructTag) (out []string) {
	switch v.Kind() {
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			return nil
		}
		for i := range v.Len() {
			out = append(out, text(v.Index(i), tag))
		}
		return out
	case reflect.Map:
		pairs := v.Interface().(map[string]string)
		for _, k := range slices.Sorted(maps.Keys(pairs)) {
			out = append(out, k+"="+pairs[k])
		}
		return out
	}
	return []string{text(v, tag)}
}

func text(v reflect.Value, tag reflect.StructTag) string {
	if n, ok := off(v.Type(), tag); ok && v.Equal(n) {
		return "off"
	}
	switch {
	case v.Type() == durationType:
		return duration(time.Duration(v.Int()))
	case v.CanFloat():
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	}
	return fmt.Sprint(v.Interface())
}

var durationType = reflect.TypeFor[time.Duration]()

// duration is d without the zero minutes and seconds at its end.
func duration(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// off returns the value of the word off.
func off(t reflect.Type, tag reflect.StructTag) (reflect.Value, bool) {
	s, ok := tag.Lookup("off")
	if !ok {
		return reflect.Value{}, false
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		panic("settings: off:" + s + " is not a number")
	}
	return reflect.ValueOf(n).Convert(t), true
}

// Key returns the key of the setting that the field of the section has its value from.
func (fs Fields) Key(section, field string) (string, bool) {
	i := slices.IndexFunc(fs, func(f Field) bool {
		return f.Section == section && f.name == field || slices.Contains(strings.Fields(f.tag.Get("field")), field)
	})
	if i < 0 {
		return "", false
	}
	return fs[i].Key, true
}

// SetDefaults sets the fields of the struct that config points to, and of structs embedded in it, that
// are zero and have the tag default: settings, and fields that are none. It panics on a wrong tag.
func SetDefaults(config any) {
	each(reflect.ValueOf(config).Elem(), func(f reflect.StructField, v reflect.Value) {
		text, ok := f.Tag.Lookup("default")
		if !ok || !v.IsZero() {
			return
		}
		if err := parse(v, text, f.Tag); err != nil {
			panic(fmt.Sprintf("settings: default of %s: %v", f.Name, err))
		}
	})
}

// Check calls report for each field of the struct that config points to, and of structs embedded in it,
// whose value is outside the bounds of its tags: settings, and fields that are none.
func Check(config any, report func(field string, err error)) {
	each(reflect.ValueOf(config).Elem(), func(f reflect.StructField, v reflect.Value) {
		values := []reflect.Value{v}
		if v.Kind() == reflect.Slice {
			values = values[:0]
			for i := range v.Len() {
				values = append(values, v.Index(i))
			}
		}
		for _, one := range values {
			if n, ok := off(one.Type(), f.Tag); ok && one.Equal(n) {
				continue
			}
			if err := check(one, f.Tag); err != nil {
				report(f.Name, err)
				return
			}
		}
	})
}

// each calls f for each field of the struct and of structs embedded in it.
func each(v reflect.Value, f func(reflect.StructField, reflect.Value)) {
	for i := range v.NumField() {
		if field := v.Type().Field(i); field.Anonymous && field.Type.Kind() == reflect.Struct {
			each(v.Field(i), f)
		} else if field.IsExported() {
			f(field, v.Field(i))
		}
	}
}
