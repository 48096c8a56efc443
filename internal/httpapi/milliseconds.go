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
	if v.Type() == timeType {
		at := readTime(v)
		short := at.Truncate(time.Millisecond)
		if short == at {
			return v, false
		}
		return reflect.ValueOf(short), true
	}
	if kind := v.Kind(); (kind == reflect.Pointer || kind == reflect.Interface) && v.IsNil() || !hasTimes(v.Type()) {
		return v, false
	}
	return truncateBelow(v)
}

// truncateBelow is truncateTimes for a value that consists of others.
func truncateBelow(v reflect.Value) (out reflect.Value, changed bool) {
	out = v
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
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
		for _, f := range timedFields(v.Type()) {
			if below, ok := truncateTimes(v.FieldByIndex(f)); ok {
				out, changed = copyOnce(v, out, changed), true
				out.FieldByIndex(f).Set(below)
			}
		}
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			if below, ok := truncateTimes(v.Index(i)); ok {
				out, changed = copyOnce(v, out, changed), true
				out.Index(i).Set(below)
			}
		}
	case reflect.Map:
		for all := v.MapRange(); all.Next(); {
			if below, ok := truncateTimes(all.Value()); ok {
				out, changed = copyOnce(v, out, changed), true
				out.SetMapIndex(all.Key(), below)
			}
		}
	}
	return out, changed
}

// copyOnce returns out, a copy of v that may be changed, and makes it unless it is made.
func copyOnce(v, out reflect.Value, made bool) reflect.Value {
	if made {
		return out
	}
	switch v.Kind() {
	case reflect.Slice:
		out = reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(out, v)
	case reflect.Map:
		out = reflect.MakeMapWithSize(v.Type(), v.Len())
		for all := v.MapRange(); all.Next(); {
			out.SetMapIndex(all.Key(), all.Value())
		}
	default:
		out = reflect.New(v.Type()).Elem()
		out.Set(v)
	}
	return out
}

// readTime returns the time in v, without a copy on the heap if v has an address.
func readTime(v reflect.Value) time.Time {
	if v.CanAddr() {
		return *v.Addr().Interface().(*time.Time)
	}
	return v.Interface().(time.Time)
}

// fields contains the indexes of the timedFields of each type of structs, which are expensive to
// find.
var fields sync.Map

// timedFields returns the indexes of the fields that may have times. Only the fields of JSON count:
// the exported ones, and the fields of embedded structs.
func timedFields(t reflect.Type) [][]int {
	if known, ok := fields.Load(t); ok {
		return known.([][]int)
	}
	var timed [][]int
	for i := range t.NumField() {
		switch f := t.Field(i); {
		case f.IsExported():
			if hasTimes(f.Type) {
				timed = append(timed, f.Index)
			}
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			for _, below := range timedFields(f.Type) {
				timed = append(timed, append([]int{i}, below...))
			}
		}
	}
	fields.Store(t, timed)
	return timed
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
