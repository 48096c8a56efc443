package settings

import (
	"reflect"
	"strings"
	"time"
)

// redacted replaces the value of a secret.
const redacted = "(redacted)"

// RedactedText is Text, without the value of a secret.
func (f Field) RedactedText() string {
	if f.Secret && !f.value.IsZero() {
		return redacted
	}
	return f.Text()
}

// Document returns the values as nested maps, as a file has them. Secrets are redacted.
func (fs Fields) Document() map[string]any {
	out := make(map[string]any)
	for _, f := range fs {
		at, path := out, strings.Split(f.Key, ".")
		for _, name := range path[:len(path)-1] {
			if at[name] == nil {
				at[name] = make(map[string]any)
			}
			at = at[name].(map[string]any)
		}
		name := path[len(path)-1]
		if f.Secret && !f.value.IsZero() {
			at[name] = redacted
		} else {
			at[name] = document(f.value, f.tag)
		}
	}
	return out
}

// document returns a value as a file has it.
func document(v reflect.Value, tag reflect.StructTag) any {
	switch {
	case v.Kind() == reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = document(v.Index(i), tag)
		}
		return list
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		entry := make(map[string]any)
		for i := range v.NumField() {
			if name, ok := v.Type().Field(i).Tag.Lookup("setting"); ok && !v.Field(i).IsZero() {
				entry[name] = document(v.Field(i), v.Type().Field(i).Tag)
			}
		}
		return entry
	case v.Kind() == reflect.Map, v.Kind() == reflect.Bool:
		return v.Interface()
	case v.CanFloat(), v.CanInt() && v.Type() != durationType:
		if n, ok := off(v.Type(), tag); !ok || !v.Equal(n) {
			return v.Interface()
		}
	}
	return text(v, tag)
}
