package settings

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parse sets v from text, as an environment variable or a scalar in the file has it.
func parse(v reflect.Value, text string, tag reflect.StructTag) error {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		if text == "" {
			return parseList(v, nil, tag)
		}
		return parseList(v, strings.Split(text, ","), tag)
	}
	if n, ok := off(v.Type(), tag); ok && text == "off" {
		v.Set(n)
		return nil
	}
	if err := parseScalar(v, text, tag); err != nil {
		return err
	}
	return check(v, tag)
}

// parseList sets the slice or map v from its entries.
func parseList(v reflect.Value, entries []string, tag reflect.StructTag) error {
	var errs []error
	if v.Kind() == reflect.Map {
		pairs := make(map[string]string, len(entries))
		for _, e := range entries {
			k, value, ok := strings.Cut(e, "=")
			if !ok {
				errs = append(errs, fmt.Errorf("%q: write %s", e, pairForm(tag)))
			}
			pairs[strings.TrimSpace(k)] = strings.TrimSpace(value)
		}
		v.Set(reflect.ValueOf(pairs))
		return errors.Join(errs...)
	}
	out := reflect.MakeSlice(v.Type(), len(entries), len(entries))
	for i, e := range entries {
		if v.Type().Elem() == durationType {
			e = strings.TrimSpace(e)
		}
		if err := parse(out.Index(i), e, tag); err != nil {
			errs = append(errs, fmt.Errorf("entry %d: %w", i+1, err))
		}
	}
	v.Set(out)
	return errors.Join(errs...)
}

// pairForm is how an entry of a map is written.
func pairForm(tag reflect.StructTag) string {
	if form := tag.Get("pairs"); form != "" {
		return form
	}
	return "name=value"
}

func parseScalar(v reflect.Value, text string, tag reflect.StructTag) error {
	switch digits := strings.ReplaceAll(text, "_", ""); {
	case v.Type() == durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			return noDuration(text, tag)
		}
		v.SetInt(int64(d))
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is not true or false", text)
		}
		v.SetBool(b)
	case v.CanInt():
		n, err := strconv.ParseInt(digits, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is not a whole number%s", text, orOff(tag))
		}
		v.SetInt(n)
	case v.CanFloat():
		n, err := strconv.ParseFloat(digits, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return fmt.Errorf("%q is not a number%s", text, orOff(tag))
		}
		v.SetFloat(n)
	default:
		panic("settings: no settings of type " + v.Type().String())
	}
	return nil
}

func noDuration(text string, tag reflect.StructTag) error {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return fmt.Errorf("missing unit in duration %q: write it, as in 500ms, 30s, 5m or 24h%s", text, orOff(tag))
	}
	return fmt.Errorf("%q is not a duration: write one as 500ms, 30s, 5m or 24h%s", text, orOff(tag))
}

// orOff completes an error on a setting that can be switched off.
func orOff(tag reflect.StructTag) string {
	if _, ok := tag.Lookup("off"); ok {
		return ", or off"
	}
	return ""
}

// check returns an error if the value is outside the bounds of its tags.
func check(v reflect.Value, tag reflect.StructTag) error {
	if n, ok := off(v.Type(), tag); ok && (v.IsZero() && (v.Type() == durationType || n.IsZero())) {
		v.Set(n)
		return nil
	} else if ok && compare(v, reflect.Zero(v.Type())) <= 0 {
		return fmt.Errorf("%s must be positive, or off", text(v, ""))
	}
	if words := strings.Fields(tag.Get("oneof")); len(words) > 0 && !slices.Contains(words, v.String()) {
		return fmt.Errorf("%q: write %s", v.String(), strings.Join(words, " or "))
	}
	for _, bound := range []struct {
		tag, wrong string
		sign       int
	}{{"min", "below", -1}, {"max", "above", 1}} {
		limit, ok := tag.Lookup(bound.tag)
		if !ok {
			continue
		}
		b := reflect.New(v.Type()).Elem()
		if err := parseScalar(b, limit, ""); err != nil {
			panic(fmt.Sprintf("settings: %s:%s: %v", bound.tag, limit, err))
		}
		if compare(v, b)*bound.sign > 0 {
			return fmt.Errorf("%s is %s the limit of %s", text(v, ""), bound.wrong, text(b, ""))
		}
	}
	return nil
}

// compare returns the sign of a-b, both numbers of one type.
func compare(a, b reflect.Value) int {
	switch {
	case a.CanFloat() && a.Float() < b.Float(), a.CanInt() && a.Int() < b.Int():
		return -1
	case a.CanFloat() && a.Float() > b.Float(), a.CanInt() && a.Int() > b.Int():
		return 1
	}
	return 0
}
