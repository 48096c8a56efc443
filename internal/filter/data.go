package filter

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
)

// decode returns the payload as the value of data, nil if it is not JSON. Numbers without a
// fraction and an exponent are integers of 64 bits, others are doubles. A number that is out of
// range is an error for the expressions that use it.
func decode(data json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return numbers(v)
}

// numbers replaces the numbers of a JSON value.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, x := range v {
			v[key] = numbers(x)
		}
	case []any:
		for i, x := range v {
			v[i] = numbers(x)
		}
	case json.Number:
		return number(v.String())
	}
	return v
}

// number returns an int64, a uint64 above its range, a double, or an error of CEL.
func number(text string) any {
	if strings.ContainsAny(text, ".eE") {
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			return f
		}
	} else if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	} else if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n
	}
	return types.NewErr("data: the number %.40s is out of range: integers have 64 bits, others are doubles", text)
}
