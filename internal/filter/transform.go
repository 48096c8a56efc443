package filter

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// The keys of the result of a Transform.
const (
	keyPayload = "payload"
	keyHeaders = "headers"
)

// Transform is an expression that returns another payload and other headers for an event. It
// is safe for concurrent use.
type Transform struct{ program cel.Program }

// CompileTransform parses a transform, and checks its keys and the types that are known
// without an event. The error contains the position.
func CompileTransform(text string) (*Transform, error) {
	program, err := compile(environment, text, start, func(a *cel.Ast) error { return checkResult(a.NativeRep(), a.NativeRep().Expr()) })
	if err != nil {
		return nil, err
	}
	return &Transform{program}, nil
}

// checkResult checks an expression that is the result, as far as it is known.
func checkResult(a *ast.AST, e ast.Expr) error {
	switch t := a.GetType(e.ID()); {
	case e.Kind() == ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			if err := checkEntry(a, entry.AsMapEntry()); err != nil {
				return err
			}
		}
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Conditional:
		args := e.AsCall().Args()
		if err := checkResult(a, args[1]); err != nil {
			return err
		}
		return checkResult(a, args[2])
	case !mayBe(t, types.MapKind):
		return at(a, e.ID(), "the type is %s, want a map: return {\"payload\": …}, {\"headers\": …} or both", t)
	}
	return nil
}

func checkEntry(a *ast.AST, e ast.MapEntry) error {
	if e.Key().Kind() != ast.LiteralKind {
		return nil
	}
	switch t := a.GetType(e.Value().ID()); e.Key().AsLiteral() {
	case types.String(keyPayload):
	case types.String(keyHeaders):
		if mayBe(t, types.MapKind) && (t.Kind() == types.DynKind || mayBe(t.Parameters()[0], types.StringKind) && mayBe(t.Parameters()[1], types.StringKind, types.NullTypeKind)) {
			return nil
		}
		return at(a, e.Value().ID(), "headers: the type is %s, want a map of texts, null to remove a header: convert values with string(…)", t)
	default:
		return at(a, e.Key().ID(), "unknown key %v: use payload and headers", e.Key().AsLiteral().Value())
	}
	return nil
}

// mayBe reports whether a value of a type can have one of the kinds. The type dyn is that of
// values which only an event determines.
func mayBe(t *cel.Type, kinds ...types.Kind) bool {
	return t.Kind() == types.DynKind || slices.Contains(kinds, t.Kind())
}

// at returns an error with the position of an expression.
func at(a *ast.AST, id int64, format string, args ...any) error {
	l := a.SourceInfo().GetStartLocation(id)
	return position(start, l, fmt.Sprintf(format, args...))
}

// Apply returns the event with the payload of the result, its key payload, and with its key
// headers merged into the headers: null removes one. The rest of the event does not change. It
// returns an error if the result cannot be computed, is not of that form, or is larger than an
// event may be. The data of the given event does not change.
func (t *Transform) Apply(e kafkarecord.Event) (kafkarecord.Event, error) {
	out, _, err := t.program.Eval(variables(&e))
	if err != nil {
		return e, err
	}
	result, ok := out.(traits.Mapper)
	if !ok {
		return e, fmt.Errorf("the result is a %s, want a map: return {\"payload\": …}, {\"headers\": …} or both", out.Type().TypeName())
	}
	for it := result.Iterator(); it.HasNext() == types.True; {
		if key := it.Next(); key != types.String(keyPayload) && key != types.String(keyHeaders) {
			return e, fmt.Errorf("unknown key %v: use payload and headers", key.Value())
		}
	}
	size, contentType := 0, ""
	if v, ok := result.Find(types.String(keyHeaders)); ok {
		if size, contentType, err = mergeHeaders(&e, v); err != nil {
			return e, fmt.Errorf("headers: %w", err)
		}
	}
	if v, ok := result.Find(types.String(keyPayload)); ok {
		if err := setPayload(&e, v, contentType, outbox.MaxEventBytes-size); err != nil {
			return e, fmt.Errorf("payload: %w", err)
		}
	} else if contentType != "" {
		content(&e, e.Payload(), contentType)
	}
	return e, nil
}

// mergeHeaders returns the size of the headers in the result and, if they contain it, the
// content type, which is a field of the event.
func mergeHeaders(e *kafkarecord.Event, v ref.Val) (size int, contentType string, err error) {
	changes, ok := v.(traits.Mapper)
	if !ok {
		return 0, "", fmt.Errorf("it is a %s, want a map of texts", v.Type().TypeName())
	}
	merged := maps.Clone(e.Headers) // changes may be the same map
	if merged == nil {
		merged = make(map[string]string)
	}
	for it := changes.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, isText := key.(types.String)
		value, isValue := changes.Get(key).(types.String)
		remove := !isValue && changes.Get(key).Type() == types.NullType
		old, there := e.Headers[string(name)]
		switch {
		case !isText || name == "":
			return 0, "", fmt.Errorf("the name %v is no text, or empty", key.Value())
		case !isValue && !remove:
			return 0, "", fmt.Errorf("%s is a %s, want a text or null: use string(…)", name, changes.Get(key).Type().TypeName())
		case strings.EqualFold(string(name), outbox.HeaderContentType):
			if contentType = string(value); contentType == "" {
				return 0, "", fmt.Errorf("%s cannot be removed", name)
			}
		case identifies(string(name)) && (remove && there || !remove && (!there || old != string(value))):
			return 0, "", fmt.Errorf("%s cannot be changed: names with ce_ identify the event", name)
		case remove:
			delete(merged, string(name))
			replaceHeader(e, string(name), nil)
		case !there || old != string(value): // the same text may be that of other bytes
			merged[string(name)] = string(value)
			replaceHeader(e, string(name), []byte(value))
		}
		if size += len(name) + len(value); size > outbox.MaxEventBytes {
			return 0, "", errTooLarge
		}
	}
	e.Headers = merged
	return size, contentType, nil
}

// replaceHeader replaces the headers of a name in RecordHeaders, if the event has them, by one
// with the value; nil only removes them.
func replaceHeader(e *kafkarecord.Event, name string, value []byte) {
	if e.RecordHeaders == nil {
		return
	}
	e.RecordHeaders = slices.DeleteFunc(slices.Clone(e.RecordHeaders), func(h kafkarecord.Header) bool { return h.Text() == name })
	if value != nil {
		e.RecordHeaders = append(e.RecordHeaders, kafkarecord.Header{Name: name, Value: value})
	}
}

// identifies reports whether a header belongs to what an event is, and to its order.
func identifies(name string) bool { return len(name) >= 3 && strings.EqualFold(name[:3], "ce_") }

var errTooLarge = fmt.Errorf("the result has more than %d bytes: return less", outbox.MaxEventBytes)

// setPayload replaces the payload. Texts and bytes are the payload itself, other values are its
// JSON.
func setPayload(e *kafkarecord.Event, v ref.Val, contentType string, limit int) error {
	var payload []byte
	var err error
	isJSON := false
	switch v := v.(type) {
	case types.String:
		payload = []byte(v)
	case types.Bytes:
		payload = append([]byte{}, v...) // which is never null
	default:
		isJSON = true
		if payload, err = appendJSON(nil, v, "", limit); err != nil {
			return err
		}
	}
	if len(payload) > limit {
		return errTooLarge
	}
	for _, name := range []string{outbox.HeaderDataRef, outbox.HeaderDataSchema} { // of the payload before
		if _, ok := e.Headers[name]; ok {
			e.Headers = maps.Clone(e.Headers)
			delete(e.Headers, name)
			replaceHeader(e, name, nil)
		}
	}
	if content(e, payload, cmp.Or(contentType, e.ContentType)); isJSON && e.Data == nil && contentType == "" {
		content(e, payload, "application/json")
	}
	return nil
}

// content sets payload and content type as the decoding of a record does.
func content(e *kafkarecord.Event, payload []byte, contentType string) {
	d := kafkarecord.DecodeWith(&kgo.Record{Value: payload, Headers: []kgo.RecordHeader{{Key: outbox.HeaderContentType, Value: []byte(contentType)}}}, jsonform.Valid)
	if e.ContentType != contentType {
		replaceHeader(e, outbox.HeaderContentType, []byte(contentType))
	}
	e.ContentType, e.Data, e.Text, e.Base64 = d.ContentType, d.Data, d.Text, d.Base64
}

// appendJSON appends a value as JSON, keys sorted: attempts have the same payload. Each item
// begins with newline and two spaces for each level, unless it is empty. It ends above the limit
// with errTooLarge and the first part, since a small expression can repeat a large value many
// times. Only the last item may pass the limit without an error.
func appendJSON(b []byte, v ref.Val, newline string, limit int) (_ []byte, err error) {
	if len(b) > limit {
		return b, errTooLarge
	}
	switch v := v.(type) {
	case *types.Err: // a number without a value
		return nil, v
	case types.Null:
		b = append(b, "null"...)
	case types.Bool:
		b = strconv.AppendBool(b, bool(v))
	case types.Int:
		b = strconv.AppendInt(b, int64(v), 10)
	case types.Uint:
		b = strconv.AppendUint(b, uint64(v), 10)
	case types.Double:
		text, err := json.Marshal(float64(v))
		if err != nil {
			return nil, fmt.Errorf("JSON has no number %v", float64(v))
		}
		b = append(b, text...)
	case types.String:
		b, _ = jsontext.AppendQuote(b, string(v)) // invalid UTF-8 is replaced
	case types.Timestamp, types.Duration:
		return appendJSON(b, v.ConvertToType(types.StringType), newline, limit)
	case traits.Mapper:
		return appendMap(b, v, newline, limit)
	case traits.Lister:
		b = append(b, '[')
		inner, empty := deeper(newline), true
		for it := v.Iterator(); it.HasNext() == types.True; empty = false {
			if !empty {
				b = append(b, ',')
			}
			if b, err = appendJSON(append(b, inner...), it.Next(), inner, limit); err != nil {
				return b, err
			}
		}
		if !empty {
			b = append(b, newline...)
		}
		b = append(b, ']')
	default:
		return nil, fmt.Errorf("JSON has no %s: convert it with string(…)", v.Type().TypeName())
	}
	return b, nil
}

// deeper returns the beginning of a line that is one level deeper, if there are lines.
func deeper(newline string) string {
	if newline == "" {
		return ""
	}
	return newline + "  "
}

func appendMap(b []byte, m traits.Mapper, newline string, limit int) (_ []byte, err error) {
	var keys []string
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		text, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf("JSON has no key %v: use texts", key.Value())
		}
		keys = append(keys, string(text))
	}
	slices.Sort(keys)
	b = append(b, '{')
	inner, colon := deeper(newline), ":"
	if newline != "" {
		colon = ": "
	}
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(append(b, inner...), key)
		if b, err = appendJSON(append(b, colon...), m.Get(types.String(key)), inner, limit); err != nil {
			return b, err
		}
	}
	if len(keys) > 0 {
		b = append(b, newline...)
	}
	return append(b, '}'), nil
}
