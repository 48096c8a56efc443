package app

import (
	"errors"
	"reflect"
	"time"

	"github.com/go-viper/mapstructure/v2"
)

// durationHook decodes durations in a file: text with its unit, and of numbers 0 and
// -1 alone. Any other number would be taken for nanoseconds, which nobody means by
// retention.resolved: 720.
func durationHook() mapstructure.DecodeHookFunc {
	return mapstructure.ComposeDecodeHookFunc(mapstructure.StringToTimeDurationHookFunc(), refuseBareNumber)
}

func refuseBareNumber(_, to reflect.Type, v any) (any, error) {
	if to != reflect.TypeFor[time.Duration]() {
		return v, nil
	}
	n := reflect.ValueOf(v)
	switch {
	case n.Type() == to, n.CanInt() && (n.Int() == 0 || n.Int() == -1):
		return v, nil
	case n.CanInt(), n.CanUint(), n.CanFloat():
		return nil, errors.New("time: missing unit: write it, as in 500ms, 30s, 5m or 24h")
	}
	return v, nil
}
