// Package filter evaluates conditions over events, transforms of them and texts about them,
// written in CEL.
package filter

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/ext"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
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
		cel.ParserExpressionSizeLimit(MaxLength), cel.ParserRecursionLimit(100), cel.CrossTypeNumericComparisons(true), ext.Strings(), ext.TwoVarComprehensions(),
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

// compiling serializes compile: the type checkers of one cel.Env share the catalog that the
// first one makes, without a lock (cel-go 0.33.2, checker.Env.Catalog and cloneWithDecls).
var compiling sync.Mutex

// Expression is a condition over events. It is safe for concurrent use.
type Expression struct{ program cel.Program }

// Compile parses an expression and checks the types that are known without an
// event. The error contains the position.
func Compile(text string) (*Expression, error) {
	program, err := compile(environment, text, start, func(a *cel.Ast) error {
		if !a.OutputType().IsExactType(cel.BoolType) {
			return fmt.Errorf("line 1, column 1: the type is %s, want bool: compare the value with another one", a.OutputType())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &Expression{program}, nil
}

// Check returns the errors of the fields filter and transform of a subscription, a line for
// each. Empty ones have none.
func Check(filter, transform string) (err error) {
	if strings.TrimSpace(filter) != "" {
		if _, bad := Compile(filter); bad != nil {
			err = fmt.Errorf("filter: %w", bad)
		}
	}
	if strings.TrimSpace(transform) != "" {
		if _, bad := CompileTransform(transform); bad != nil {
			err = errors.Join(err, fmt.Errorf("transform: %w", bad))
		}
	}
	return err
}

// compile returns the program of an expression that begins at a position, for errors.
func compile(environment func() (*cel.Env, error), text string, from common.Location, check func(*cel.Ast) error) (cel.Program, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("CEL: %w", err)
	}
	compiling.Lock()
	defer compiling.Unlock()
	a, issues := env.Compile(text)
	if issues.Err() != nil {
		var errs []string
		for _, e := range issues.Errors() {
			msg, _, _ := strings.Cut(e.Message, "\n")
			errs = append(errs, position(from, e.Location, msg).Error())
		}
		return nil, errors.New(strings.Join(errs, "; ")) // in one line: the API has a field of each line
	}
	if err := check(a); err != nil {
		return nil, err
	}
	return program(env, a, from)
}

// program makes a checked expression executable. cel-go 0.33.2 panics here for a constant map
// whose key is no text, number or bool (interpreter.evalMap.Exec).
func program(env *cel.Env, a *cel.Ast, from common.Location) (p cel.Program, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = position(from, start, fmt.Sprintf("the expression cannot be evaluated: %v", r))
		}
	}()
	return env.Program(a, cel.CostLimit(maxCost), cel.CostTrackerOptions(jsonCost), cel.EvalOptions(cel.OptOptimize))
}

// start is the position of an expression that is all of its field.
var start = common.NewLocation(1, 0)

// position returns an error with its position, which is l in the expression that begins at from.
func position(from, l common.Location, msg string) error {
	line, column := max(1, l.Line()), max(0, l.Column()) // of an empty expression 0 and -1
	if line == 1 {
		column += from.Column()
	}
	// CEL counts columns from 0, people from 1.
	return fmt.Errorf("line %d, column %d: %s", line+from.Line()-1, column+1, msg)
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
		"aggregate_id": e.AggregateID, "aggregate_type": e.AggregateType, "sequence": e.Sequence, "time": eventTime(e),
		"content_type": e.ContentType, "headers": headers,
		"data": func() any { return decode(e.Data) },
		"data_text": func() any {
			if e.Text == nil {
				return ""
			}
			return *e.Text
		},
	}
}

// eventTime returns the time of the event, by default that of its record.
func eventTime(e *kafkarecord.Event) time.Time {
	if t, err := time.Parse(time.RFC3339Nano, e.Time); err == nil {
		return t
	}
	return e.At
}
