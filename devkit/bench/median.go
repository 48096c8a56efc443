package bench

import (
	"reflect"
	"slices"
)

// Median returns a T whose numbers are each the median over the runs; other fields are
// taken from the first run. There must be one run or more.
func Median[T any](runs []T) T {
	var out T
	values := make([]reflect.Value, len(runs))
	for i := range runs {
		values[i] = reflect.ValueOf(&runs[i]).Elem()
	}
	median(reflect.ValueOf(&out).Elem(), values)
	return out
}

func median(out reflect.Value, runs []reflect.Value) {
	switch out.Kind() {
	case reflect.Float64:
		all := make([]float64, len(runs))
		for i, r := range runs {
			all[i] = r.Float()
		}
		slices.Sort(all)
		n := len(all)
		out.SetFloat((all[(n-1)/2] + all[n/2]) / 2)
	case reflect.Int64:
		all := make([]int64, len(runs))
		for i, r := range runs {
			all[i] = r.Int()
		}
		slices.Sort(all)
		out.SetInt(all[(len(all)-1)/2])
	case reflect.Struct:
		for f := range out.NumField() {
			fields := make([]reflect.Value, len(runs))
			for i, r := range runs {
				fields[i] = r.Field(f)
			}
			median(out.Field(f), fields)
		}
	default:
		out.Set(runs[0])
	}
}
