package filter

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
)

// MaxText bounds the result of a Text, in bytes; a longer one is cut, and … follows.
const MaxText = 16 << 10

// textEnvironment declares what only the expressions of a Text have.
var textEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	return env.Extend(
		cel.Variable("subscription", cel.StringType),
		cel.Function("json", cel.Overload(jsonOverload, []*cel.Type{cel.DynType}, cel.StringType, cel.UnaryBinding(indentJSON))),
	)
})

const jsonOverload = "json_dyn"

// jsonCost is the cost of the result, as of other strings.
var jsonCost = cost.OverloadTracker(jsonOverload, func(_ []ref.Val, result ref.Val) *uint64 {
	text, _ := result.(types.String)
	return new(1 + uint64(len(text))/10)
})

// indentJSON returns a value as JSON in lines, as much of it as a Text can have.
func indentJSON(v ref.Val) ref.Val {
	b, err := appendJSON(nil, v, "\n", MaxText)
	if err != nil && !errors.Is(err, errTooLarge) {
		return types.WrapErr(err)
	}
	return types.String(cut(string(b), MaxText+utf8.UTFMax)) // Text cuts it
}

// cut returns at most n bytes of a text, without a part of a character.
func cut(text string, n int) string {
	return strings.ToValidUTF8(text[:min(n, len(text))], "")
}

// Text is a text with expressions between {{ and }}, whose results replace them. It is safe
// for concurrent use.
type Text struct{ parts []part }

// part is a literal, or else the program of an expression.
type part struct {
	literal string
	program cel.Program
}

// CompileText parses a text. The error contains the position of each expression that is wrong.
func CompileText(text string) (*Text, error) {
	t := new(Text)
	var errs []string
	for rest := text; rest != ""; {
		literal, expression, found := strings.Cut(rest, "{{")
		t.parts = append(t.parts, part{literal: literal})
		if !found {
			break
		}
		before := text[:len(text)-len(expression)]
		from := common.NewLocation(1+strings.Count(before, "\n"), utf8.RuneCountInString(before[strings.LastIndex(before, "\n")+1:]))
		end := expressionEnd(expression)
		if end < 0 {
			errs = append(errs, fmt.Sprintf("line %d, column %d: {{ without }}", from.Line(), from.Column()-1))
			break
		}
		program, err := compile(textEnvironment, expression[:end], from, nothing)
		if err != nil {
			errs = append(errs, err.Error())
		}
		t.parts = append(t.parts, part{program: program})
		rest = expression[end+len("}}"):]
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%s: between {{ and }} write CEL, such as {{data.total}} or {{json(data)}}", strings.Join(errs, "; "))
	}
	return t, nil
}

// tokens matches what decides where an expression ends: the literals of CEL, a quote that
// begins no literal, with all that follows, and braces.
var tokens = regexp.MustCompile(`(?s)[rR]""".*?"""|[rR]'''.*?'''|"""(?:\\.|[^\\])*?"""|'''(?:\\.|[^\\])*?'''|` +
	`[rR]"[^"\n\r]*"|[rR]'[^'\n\r]*'|"(?:\\.|[^\\"\n\r])*"|'(?:\\.|[^\\'\n\r])*'|["'].*|[{}]`)

// expressionEnd returns the index of the }} that ends an expression, -1 without one. Braces in
// literals, and braces of maps, do not end it.
func expressionEnd(text string) int {
	depth := 0
	for at := 0; ; {
		token := tokens.FindStringIndex(text[at:])
		switch {
		case token == nil:
			return -1
		case text[at+token[0]] == '{':
			depth++
		case text[at+token[0]] == '}' && depth > 0:
			depth--
		case strings.HasPrefix(text[at+token[0]:], "}}"):
			return at + token[0]
		}
		at += token[1]
	}
}

// Of returns the text about an event of a subscription. An expression without a result for the
// event is replaced by its error between < and >, since people read the rest.
func (t *Text) Of(e *kafkarecord.Event, subscription string) string {
	v := variables(e)
	v["data"] = sync.OnceValue(func() any { return decode(e.Data) }) // once for all expressions
	v["subscription"] = subscription
	var b strings.Builder
	var spent uint64
	for _, p := range t.parts {
		if p.program == nil {
			b.WriteString(p.literal)
		} else {
			b.WriteString(p.result(v, &spent))
		}
		if b.Len() > MaxText {
			return cut(b.String(), MaxText) + "…"
		}
	}
	return b.String()
}

// result returns the result of an expression, or its error. All expressions of a text together
// have the cost of one, and that of the last of them.
func (p *part) result(variables map[string]any, spent *uint64) string {
	if *spent > maxCost {
		return "<the expressions before cost too much>"
	}
	out, details, err := p.program.Eval(variables)
	if n := details.ActualCost(); n != nil {
		*spent += *n
	}
	text := ""
	if err == nil {
		text, err = formatValue(out)
	}
	if err != nil {
		return "<" + err.Error() + ">"
	}
	return text
}

// formatValue returns a value as people read it.
func formatValue(v ref.Val) (string, error) {
	switch v := v.(type) {
	case types.Null:
		return "", nil
	case types.String:
		return string(v), nil
	case types.Bytes:
		return strings.ToValidUTF8(string(v), "\uFFFD"), nil
	case types.Timestamp, types.Duration:
		return fmt.Sprint(v.ConvertToType(types.StringType).Value()), nil
	}
	b, err := appendJSON(nil, v, "", MaxText)
	if errors.Is(err, errTooLarge) {
		err = nil // Text cuts it
	}
	return string(b), err
}

// nothing is the check of an expression that may have any type.
func nothing(*cel.Ast) error { return nil }
