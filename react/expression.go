package react

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/ext"

	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
)

const (
	// maxCost bounds the evaluation of an expression, in CEL's units: about one for
	// each step, and for each ten bytes of a text that are looked at.
	maxCost = 100_000
	// maxExpression bounds its text, in characters.
	maxExpression = 10_000
)

// environment is what expressions may speak of: the event, by the names that its
// JSON has.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.ParserExpressionSizeLimit(maxExpression), cel.ParserRecursionLimit(100), cel.CrossTypeNumericComparisons(true), ext.Strings(),
		cel.Variable("topic", cel.StringType),
		cel.Variable("partition", cel.IntType),
		cel.Variable("offset", cel.IntType),
		cel.Variable("at", cel.TimestampType),
		cel.Variable("key", cel.StringType),
		cel.Variable("event_id", cel.StringType),
		cel.Variable("event_type", cel.StringType),
		cel.Variable("aggregate_id", cel.StringType),
		cel.Variable("aggregate_type", cel.StringType),
		cel.Variable("sequence", cel.IntType),
		cel.Variable("time", cel.TimestampType),
		cel.Variable("content_type", cel.StringType),
		cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("data", cel.DynType),
		cel.Variable("data_text", cel.StringType),
	)
})

// expression is a condition over events. It is safe for concurrent use.
type expression struct{ program cel.Program }

// compile checks an expression: its types too, as far as they are known before
// there is an event. The error says where it is wrong.
func compile(text string) (*expression, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("CEL: %w", err)
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		var errs []error
		for _, e := range issues.Errors() {
			msg, _, _ := strings.Cut(e.Message, "\n")
			// CEL counts columns from 0, people from 1.
			errs = append(errs, fmt.Errorf("line %d, column %d: %s", max(1, e.Location.Line()), e.Location.Column()+1, msg))
		}
		return nil, errors.Join(errs...)
	}
	if !ast.OutputType().IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("line 1, column 1: it is a %s, and must be true or false: compare it with something", ast.OutputType())
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, err
	}
	return &expression{program}, nil
}

// holds evaluates the expression. An error says that it cannot be decided for this
// event: a field is missing, is of another type, or it costs too much.
func (x *expression) holds(e *kafkarecord.Event) (bool, error) {
	out, _, err := x.program.Eval(variables(e))
	if err != nil {
		return false, err
	}
	b, ok := out.Value().(bool)
	if !ok {
		return false, fmt.Errorf("it is a %s, not true or false", out.Type())
	}
	return b, nil
}

// variables are the event's, by name. The payload is read when it is asked for.
func variables(e *kafkarecord.Event) map[string]any {
	headers := e.Headers
	if headers == nil {
		headers = map[string]string{}
	}
	return map[string]any{
		"topic": e.Topic, "partition": int64(e.Partition), "offset": e.Offset, "at": e.At, "key": e.Key, "event_id": e.ID, "event_type": e.Type,
		"aggregate_id": e.AggregateID, "aggregate_type": e.AggregateType, "sequence": e.Sequence, "time": happened(e),
		"content_type": e.ContentType, "headers": headers,
		"data": func() any {
			var v any
			_ = json.Unmarshal(e.Data, &v) // null for what is no JSON
			return v
		},
		"data_text": func() any {
			if e.Text == nil {
				return ""
			}
			return *e.Text
		},
	}
}

// happened is when the event did; when it came to its topic, if it does not say.
func happened(e *kafkarecord.Event) time.Time {
	if t, err := time.Parse(time.RFC3339Nano, e.Time); err == nil {
		return t
	}
	return e.At
}
