package httpapi

import (
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// inMilliseconds is a transformer that limits the times of responses to milliseconds, which the
// database and the broker have.
func inMilliseconds(_ huma.Context, _ string, v any) (any, error) { return Milliseconds(v), nil }

// Milliseconds returns v with all times below it truncated to milliseconds. It does not change v,
// which others may use, and copies only what contains such times.
func Milliseconds(v any) any {
	if v == nil {
		return nil
	}
	out, _ := truncateTimes(reflect.ValueOf(v))
	return out.Interface()
}

var timeType = reflect.TypeFor[time.Time]()

// truncateTimes returns v or a changed copy of it.
func truncateTimes(v reflect.Value) (out reflect.Value, changed bool) {
	if !hasTimes(v.Type()) {
		return v, false
	}
	if v.Type() == timeType {
		at := v.Interface().(time.Time)
		short := at.Truncate(time.Millisecond)
		return reflect.ValueOf(short), short != at
	}
	out = v
	writable := func() {
		if !changed {
			out, changed = reflect.New(v.Type()).Elem(), true
			out.Set(v)
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return v, false
		}
		below, ok := truncateTimes(v.Elem())
		if !ok {
			return v, false
		}
		if v.Kind() == reflect.Interface {
			return below, true
		}
		out = reflect.New(below.Type())
		out.Elem().Set(below)
		return out.Convert(v.Type()), true
	case reflect.Struct:
		truncateFields(v, func() reflect.Value { writable(); return out })
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			below, ok := truncateTimes(v.Index(i))
			if !ok {
				continue
			}
			if !changed && v.Kind() == reflect.Slice {
				out, changed = reflect.MakeSlice(v.Type(), v.Len(), v.Len()), true
				reflect.Copy(out, v)
			}
			writable()
			out.Index(i).Set(below)
		}
	case reflect.Map:
		for all := v.MapRange(); all.Next(); {
			below, ok := truncateTimes(all.Value())
			if !ok {
				continue
			}
			if !changed {
				out, changed = reflect.MakeMapWithSize(v.Type(), v.Len()), true
				for same := v.MapRange(); same.Next(); {
					out.SetMapIndex(same.Key(), same.Value())
				}
			}
			out.SetMapIndex(all.Key(), below)
		}
	}
	return out, changed
}

// truncateFields sets the fields of a copy of v that have other times. Only the fields of JSON are
// set: the exported ones, and those of embedded structs.
func truncateFields(v reflect.Value, copied func() reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case f.IsExported():
			if below, ok := truncateTimes(v.Field(i)); ok {
				copied().Field(i).Set(below)
			}
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			truncateFields(v.Field(i), func() reflect.Value { return copied().Field(i) })
		}
	}
}

// timed contains for each type whether values of it may have times.
var timed sync.Map

func hasTimes(t reflect.Type) bool {
	if has, known := timed.Load(t); known {
		return has.(bool)
	}
	has := mayHaveTimes(t, make(map[reflect.Type]bool))
	timed.Store(t, has)
	return has
}

func mayHaveTimes(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == timeType || t.Kind() == reflect.Interface {
		return true
	}
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return mayHaveTimes(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); (f.IsExported() || f.Anonymous) && mayHaveTimes(f.Type, seen) {
				return true
			}
		}
	}
	return false
}
