package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/api"
	"github.com/scylla-outbox/scylla-outbox/outbox/hint"
	"github.com/scylla-outbox/scylla-outbox/outbox/hint/datagram"
	"github.com/scylla-outbox/scylla-outbox/outbox/inbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/outbox/outboxtest"
	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
)

// promised are the exported functions and types of the packages of this module, by folder. Methods
// are found by reflection.
var promised = map[string]struct {
	functions map[string]any
	types     []any // a nil pointer to each
}{
	".": {
		map[string]any{
			"Append": outbox.Append, "AppendHeaders": outbox.AppendHeaders[outbox.Header], "AppendHeadersTo": outbox.AppendHeadersTo[outbox.Header], "FromRecord": outbox.FromRecord[outbox.Header],
			"IDFromInt": outbox.IDFromInt, "IDFromText": outbox.IDFromText, "IDFromUUID": outbox.IDFromUUID, "LoadPayload": outbox.LoadPayload,
			"MovePayload": outbox.MovePayload, "NameID": outbox.NameID, "NewAppender": outbox.NewAppender, "NewID": outbox.NewID,
			"NewTable": outbox.NewTable, "ReadColumns": outbox.ReadColumns,
		},
		[]any{
			(*outbox.AppendOptions)(nil), (*outbox.Appended)(nil), (*outbox.Appender)(nil), (*outbox.AppenderConfig)(nil), (*outbox.BatchTypeError)(nil),
			(*outbox.Column)(nil), (*outbox.ConflictError)(nil), (*outbox.Event)(nil), (*outbox.FieldError)(nil), (*outbox.GapError)(nil),
			(*outbox.Header)(nil), (*outbox.ID)(nil), (*outbox.InvalidEventError)(nil), (*outbox.Mapping)(nil), (*outbox.MappingError)(nil),
			(*outbox.Record)(nil), (*outbox.Rows)(nil), (*outbox.Swept)(nil), (*outbox.Table)(nil), (*outbox.UnknownOutcomeError)(nil),
		},
	},
	"api": {
		map[string]any{"WithKey": api.WithKey, "WithTrace": api.WithTrace},
		[]any{(*api.Client)(nil), (*api.FieldError)(nil), (*api.Option)(nil), (*api.Problem)(nil), (*api.Type)(nil)},
	},
	"hint": {
		map[string]any{"NewSender": hint.NewSender},
		[]any{(*hint.Sender)(nil), (*hint.SenderConfig)(nil)},
	},
	"hint/datagram": {
		map[string]any{"New": datagram.New},
		[]any{(*datagram.Codec)(nil), (*datagram.Header)(nil)},
	},
	"inbox": {
		map[string]any{"NewFence": inbox.NewFence, "NewOnce": inbox.NewOnce, "OnceTable": inbox.OnceTable},
		[]any{
			(*inbox.BusyError)(nil), (*inbox.ConflictError)(nil), (*inbox.Event)(nil), (*inbox.Fence)(nil), (*inbox.FenceConfig)(nil), (*inbox.GapError)(nil),
			(*inbox.Key)(nil), (*inbox.Once)(nil), (*inbox.OnceConfig)(nil), (*inbox.Order)(nil), (*inbox.Outcome)(nil),
		},
	},
	"messages": {
		map[string]any{"StateOf": messages.StateOf},
		[]any{
			(*messages.Accepted)(nil), (*messages.Client)(nil), (*messages.Content)(nil), (*messages.Message)(nil), (*messages.NewMessage)(nil),
			(*messages.Page)(nil), (*messages.Query)(nil), (*messages.Record)(nil), (*messages.Result)(nil), (*messages.State)(nil), (*messages.Step)(nil),
		},
	},
	"outboxtest": {map[string]any{"Events": outboxtest.Events}, nil},
	"payload": {
		map[string]any{
			"Key": payload.Key, "Load": payload.Load, "NewFolder": payload.NewFolder, "Parse": payload.Parse, "Resolve": payload.Resolve,
			"Unfinished": payload.Unfinished, "WriteFile": payload.WriteFile,
		},
		[]any{(*payload.Folder)(nil), (*payload.Reference)(nil)},
	},
	"rows": {
		map[string]any{
			"Adds": rows.Adds, "ByAggregate": rows.ByAggregate, "BytesToken": rows.BytesToken, "CheckDelay": rows.CheckDelay, "Column": rows.Column,
			"Columns": rows.Columns, "Decode": rows.Decode, "Descending": rows.Descending, "EventHeader": rows.EventHeader, "FromRow": rows.FromRow,
			"IDHeaders": rows.IDHeaders, "IDOf": rows.IDOf[string], "KeyToken": rows.KeyToken[string], "NewScanner": rows.NewScanner,
			"Outline": rows.Outline, "RowID": rows.RowID, "RowToken": rows.RowToken, "ScanAggregate": rows.ScanAggregate, "SelectAggregates": rows.SelectAggregates,
			"SelectByKey": rows.SelectByKey, "SelectByToken": rows.SelectByToken, "SelectPartition": rows.SelectPartition,
			"TextToken": rows.TextToken, "Token": rows.Token, "UUIDToken": rows.UUIDToken,
		},
		[]any{(*rows.RowError)(nil), (*rows.UnknownKeyError)(nil)},
	},
	"subscriptions": {
		map[string]any{"Reject": subscriptions.Reject, "RetryAfter": subscriptions.RetryAfter, "Unavailable": subscriptions.Unavailable},
		[]any{
			(*subscriptions.BreakerStatus)(nil), (*subscriptions.Client)(nil), (*subscriptions.ConsumeOptions)(nil), (*subscriptions.DeadLetter)(nil),
			(*subscriptions.Delivery)(nil), (*subscriptions.Handler)(nil), (*subscriptions.InstanceStatus)(nil), (*subscriptions.Lease)(nil),
			(*subscriptions.LeasePage)(nil), (*subscriptions.PartitionStatus)(nil), (*subscriptions.Push)(nil), (*subscriptions.ReceiveOptions)(nil),
			(*subscriptions.RecordHeader)(nil), (*subscriptions.SeekTo)(nil), (*subscriptions.SettleResult)(nil), (*subscriptions.Settling)(nil),
			(*subscriptions.Skip)(nil), (*subscriptions.Status)(nil), (*subscriptions.Subscription)(nil), (*subscriptions.WaitingConsumer)(nil),
		},
	},
}

// listExported returns the exported functions and types of a package, except interfaces.
func listExported(t *testing.T, dir string) (functions, types []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Recv == nil && d.Name.IsExported() {
						functions = append(functions, d.Name.Name)
					}
				case *ast.GenDecl:
					for _, s := range d.Specs {
						s, ok := s.(*ast.TypeSpec)
						if !ok || !s.Name.IsExported() {
							continue
						}
						if _, ok := s.Type.(*ast.InterfaceType); !ok {
							types = append(types, s.Name.Name)
						}
					}
				}
			}
		}
	}
	return functions, types
}

// emptyRow is a row without columns.
type emptyRow struct{}

func (emptyRow) GetValue(string) (any, bool) { return nil, false }

// arguments are the values besides zero with which parameters of a type are tried, and receivers.
var arguments = func() map[reflect.Type][]any {
	e := outbox.Event{
		ID: outbox.NewID(), AggregateID: outbox.IDFromText("a"), Sequence: 1, AggregateType: "order", Type: "OrderCreated",
		Payload: []byte("{}"), CreatedAt: time.Now(), Headers: map[string]string{payload.Header: payload.Key(nil, time.Time{})},
	}
	all := make(map[reflect.Type][]any)
	for _, v := range []any{
		outbox.DefaultTable, outbox.DefaultTable.WithTTL(-1), e, &e, new(outbox.Event), &gocql.Batch{Type: gocql.LoggedBatch}, outbox.IDFromText("a"),
		"x", payload.Key(nil, time.Time{}),
		[]byte{0},
		1, -1, int64(-1), time.Duration(-1),
		inbox.Key{nil},
		errors.New("failed"),
		subscriptions.ConsumeOptions{Logger: slog.New(slog.DiscardHandler)},
		inbox.Event{Key: inbox.Key{"a"}, Sequence: 1},
	} {
		all[reflect.TypeOf(v)] = append(all[reflect.TypeOf(v)], v)
	}
	all[reflect.TypeFor[payload.Store]()] = []any{new(payload.Folder)}
	all[reflect.TypeFor[rows.Row]()] = []any{emptyRow{}}
	all[reflect.TypeFor[gocql.TypeInfo]()] = []any{gocql.NewNativeType(4, gocql.TypeInt, "")}
	return all
}()

// triedValues returns the values with which a parameter is tried. A nil context is the caller's mistake
// everywhere in Go.
func triedValues(ctx context.Context, p reflect.Type) []reflect.Value {
	if p == reflect.TypeFor[context.Context]() {
		return []reflect.Value{reflect.ValueOf(ctx)}
	}
	values := []reflect.Value{reflect.Zero(p)}
	for _, v := range arguments[p] {
		values = append(values, reflect.ValueOf(v))
	}
	switch p.Kind() {
	case reflect.Slice:
		values = append(values, reflect.MakeSlice(p, 1, 1))
	case reflect.Func:
		values = append(values, reflect.MakeFunc(p, func([]reflect.Value) (out []reflect.Value) {
			for i := range p.NumOut() {
				out = append(out, reflect.Zero(p.Out(i)))
			}
			return out
		}))
	}
	return values
}

// try calls a function with each combination of arguments. It reports a panic and, of a function
// that must refuse all, a result without an error.
func try(t *testing.T, name string, f reflect.Value, refuses bool) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			combinations := [][]reflect.Value{nil}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for i := range f.Type().NumIn() {
				var longer [][]reflect.Value
				for _, args := range combinations {
					for _, v := range triedValues(ctx, f.Type().In(i)) {
						longer = append(longer, append(slices.Clip(args), v))
					}
				}
				combinations = longer
			}
			for _, args := range combinations {
				func() {
					defer func() {
						if p := recover(); p != nil {
							t.Errorf("%s%v panics: %v", name, args, p)
						}
					}()
					call := f.Call
					if f.Type().IsVariadic() {
						call = f.CallSlice
					}
					results := call(args)
					if refuses && results[len(results)-1].IsNil() {
						t.Errorf("%s%v has no error", name, args)
					}
					for _, result := range results {
						switch r := result.Interface().(type) {
						case error:
							_ = r.Error()
						case rows.Scanner:
							r.Dest()
							r.Adds()
							if _, err := r.Event(); err == nil {
								t.Errorf("%s%v scans an event of no row", name, args)
							}
						}
					}
				}()
			}
		})
	})
}

// made are the types that only their constructors can make: each function that has an error returns
// it for another value.
var made = []any{(*outbox.Appender)(nil), (*outbox.Table)(nil), (*inbox.Fence)(nil), (*inbox.Once)(nil), (*payload.Folder)(nil)}

// isPromoted reports whether a method of a type is one of an embedded field.
func isPromoted(typ reflect.Type, method string) bool {
	return typ.Kind() == reflect.Struct && slices.ContainsFunc(reflect.VisibleFields(typ), func(f reflect.StructField) bool {
		_, ok := reflect.PointerTo(f.Type).MethodByName(method)
		return ok && f.Anonymous
	})
}

// Zero receivers and nil arguments have errors, or results without a meaning, and no panic. A nil
// context, a nil pointer of an error type, the methods of a value inside of a nil pointer, and
// Unmarshal into nothing are exceptions.
func TestZeroValuesDoNotPanic(t *testing.T) {
	for dir, p := range promised {
		functions, types := listExported(t, dir)
		if have := slices.Sorted(maps.Keys(p.functions)); !slices.Equal(have, slices.Sorted(slices.Values(functions))) {
			t.Errorf("%s: the test has the functions %q; the package has %q", dir, have, functions)
		}
		if len(types) != len(p.types) {
			t.Errorf("%s: the test has %d types; the package has %q", dir, len(p.types), types)
		}
	}
	t.Chdir(t.TempDir()) // payload writes files
	for dir, p := range promised {
		for name, f := range p.functions {
			try(t, dir+"."+name, reflect.ValueOf(f), false)
		}
		for _, pointer := range p.types {
			typ := reflect.TypeOf(pointer)
			receivers := []reflect.Value{reflect.New(typ.Elem())}
			for _, v := range arguments[typ.Elem()] {
				r := reflect.New(typ.Elem())
				r.Elem().Set(reflect.ValueOf(v))
				receivers = append(receivers, r)
			}
			_, isError := pointer.(error)
			for i := range typ.NumMethod() {
				m := typ.Method(i)
				on := receivers
				if _, byValue := typ.Elem().MethodByName(m.Name); !byValue && !isError && !isPromoted(typ.Elem(), m.Name) && !strings.HasPrefix(m.Name, "Unmarshal") {
					on = append(slices.Clip(on), reflect.ValueOf(pointer))
				}
				for _, r := range on {
					f := r.Method(i)
					refuses := slices.Contains(made, pointer) && (r.IsNil() || r.Elem().IsZero()) &&
						f.Type().NumOut() > 0 && f.Type().Out(f.Type().NumOut()-1) == reflect.TypeFor[error]()
					try(t, fmt.Sprintf("%s.%s of %+v", typ, m.Name, r), f, refuses)
				}
			}
		}
	}
}
