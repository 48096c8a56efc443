package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/humatest"
)

type timedEntry struct {
	At   time.Time  `json:"at"`
	Then *time.Time `json:"then,omitempty"`
	Self *timedEntry
	n    int
}

// All times of a response have milliseconds, wherever they are, and the value of the handler, which
// may be a cached one, stays as it is.
func TestNewConfig_TimesHaveMilliseconds(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_999_999, time.UTC)
	type body struct {
		timedEntry
		One     timedEntry
		List    []timedEntry
		Two     [2]time.Time
		ByName  map[string]*timedEntry
		Any     any
		Payload json.RawMessage
		Text    string
	}
	kept := body{
		timedEntry: timedEntry{At: at}, One: timedEntry{At: at, Then: &at, Self: &timedEntry{At: at, n: 1}}, List: []timedEntry{{}, {At: at}}, Two: [2]time.Time{at, {}},
		ByName: map[string]*timedEntry{"a": {At: at}, "b": nil}, Any: map[string]any{"x": []any{at, 1, nil}}, Payload: json.RawMessage(`{"at":"2026-01-02T03:04:05.678999999Z"}`), Text: at.Format(time.RFC3339Nano),
	}
	_, api := humatest.New(t, NewConfig("v1.2.3", "Things", "", nil))
	huma.Register(api, huma.Operation{OperationID: "get", Method: http.MethodGet, Path: "/thing"}, func(context.Context, *struct{}) (*struct{ Body *body }, error) {
		return &struct{ Body *body }{&kept}, nil
	})
	got := api.Get("/thing").Body.String()
	if n := strings.Count(got, `"2026-01-02T03:04:05.678Z"`); n != 8 {
		t.Errorf("%d times have milliseconds, want 8: %s", n, got)
	}
	if n := strings.Count(got, "678999999Z"); n != 2 { // of the caller: payload and text
		t.Errorf("%d texts have nanoseconds, want 2: %s", n, got)
	}
	if kept.List[1].At != at || kept.Two[0] != at || *kept.One.Then != at || kept.ByName["a"].At != at || kept.One.Self.At != at {
		t.Errorf("the value of the handler has changed: %+v", kept)
	}
	if got := Milliseconds(nil); got != nil {
		t.Errorf("Milliseconds(nil) = %v", got)
	}
	if v := api.OpenAPI().Info.Version; v != "v1.2.3" {
		t.Errorf("version %s", v)
	}
}

// A value whose times are short already, as almost all are, is not copied.
func TestMilliseconds_CopiesNoShortTimes(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	v := &struct {
		timedEntry
		A, B, C, D time.Time
		Then       *time.Time
		List       []timedEntry
	}{A: at, B: at, C: at, D: at, Then: &at, List: []timedEntry{{At: at}, {At: at}}}
	if got := Milliseconds(v); got != any(v) {
		t.Errorf("Milliseconds returns another value: %+v", got)
	}
	if n := testing.AllocsPerRun(100, func() { Milliseconds(v) }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
