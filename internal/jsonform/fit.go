package jsonform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Fit returns the first places, as JSON pointers, where a payload does not fit a schema, with the
// errors; none if it fits. An error means that it could not be validated.
func Fit(s *jsonschema.Schema, payload []byte) (problems []string, err error) {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	if err != nil {
		return []string{"it is not JSON: " + err.Error()}, nil
	}
	if at, there := tooGreat(v); there {
		return []string{fmt.Sprintf("%s: is a number of more than %d digits, which no reader can be expected to follow", at, maxDigits)}, nil
	}
	var bad *jsonschema.ValidationError
	switch err := s.Validate(v); {
	case err == nil:
		return nil, nil
	case errors.As(err, &bad):
		return gather(nil, bad), nil
	default:
		return nil, err
	}
}

// maxDigits limits the digits of a number, written or by its exponent.
const maxDigits = 1000

// tooGreat finds a number with more than maxDigits digits and returns its place, as a
// JSON pointer. The validator computes exactly: a list of 1e999999 would take minutes,
// and larger exponents panic.
func tooGreat(v any) (at string, there bool) {
	switch v := v.(type) {
	case json.Number:
		digits, exponent, scaled := strings.Cut(strings.ToLower(v.String()), "e")
		n, err := strconv.Atoi(exponent)
		return "", len(digits) > maxDigits || scaled && (err != nil || n > maxDigits || n < -maxDigits)
	case []any:
		for i, item := range v {
			if at, there := tooGreat(item); there {
				return "/" + strconv.Itoa(i) + at, true
			}
		}
	case map[string]any:
		for name, member := range v {
			if at, there := tooGreat(member); there {
				return "/" + name + at, true
			}
		}
	}
	return "", false
}

// maxProblems limits the errors of a payload.
const maxProblems = 10

// gather appends the first leaves of the tree of causes, which contain the errors.
func gather(out []string, v *jsonschema.ValidationError) []string {
	if len(out) == maxProblems {
		return out
	}
	if len(v.Causes) == 0 {
		out = append(out, fmt.Sprintf("/%s: %s", strings.Join(v.InstanceLocation, "/"), formatProblem(v.ErrorKind)))
	}
	for _, c := range v.Causes {
		out = gather(out, c)
	}
	return out
}

// formatProblem returns the text of an error without the text in the payload, which may be a secret.
func formatProblem(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Pattern:
		return "does not match the pattern " + strconv.Quote(k.Want)
	case *kind.Format:
		return "is not valid " + k.Want
	}
	return k.LocalizedString(message.NewPrinter(language.English))
}
