// Package filter evaluates conditions over events, written in CEL.
package filter

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
	// maxCost bounds the evaluation of an expression, in cost units of CEL: about
	// one per step, and one per ten bytes of a string that are examined.
	maxCost = 100_000
	// MaxLength bounds the text of an expression, in characters.
	MaxLength = 10_000
)

// environment declares the variables of expressions: the fields of the event in
// its JSON form.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.ParserExpressionSizeLimit(MaxLength), cel.ParserRecursionLimit(100), cel.CrossTypeNumericComparisons(true), ext.Strings(),
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

// compiling serializes Compile: the type checkers of one cel.Env share the catalog that the
// first one makes, without a lock (cel-go 0.33.2, checker.Env.Catalog and cloneWithDecls).
var compiling sync.Mutex

// Expression is a condition over events. It is safe for concurrent use.
type Expression struct{ program cel.Program }

// Compile parses an expression and checks the types that are known without an
// event. The error contains the position.
func Compile(text string) (*Expression, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("CEL: %w", err)
	}
	compiling.Lock()
	defer compiling.Unlock()
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
		return nil, fmt.Errorf("line 1, column 1: the type is %s, want bool: compare the value with another one", ast.OutputType())
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, err
	}
	return &Expression{program}, nil
}

// Holds evaluates the expression. It returns an error if the expression is
// undecidable for the event: a field is missing or of another type, or the
// evaluation costs too much.
func (x *Expression) Holds(e *kafkarecord.Event) (bool, error) {
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

// variables returns the fields of the event by name. The payload is decoded on
// first use.
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
			_ = json.Unmarshal(e.Data, &v) // null if the payload is not JSON
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

// happened returns the time of the event, by default that of its record.
func happened(e *kafkarecord.Event) time.Time {
	if t, err := time.Parse(time.RFC3339Nano, e.Time); err == nil {
		return t
	}
	return e.At
}
