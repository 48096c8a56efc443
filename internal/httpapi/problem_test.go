package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// own is a problem of an API with a member of its own.
type own struct {
	Problem

	Relay string `json:"relay,omitempty"`
}

func TestProblem_RetryAfter(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "1", 0: "1", time.Millisecond: "1", time.Second: "1",
		time.Second + 1: "2", 1500 * time.Millisecond: "2", time.Minute: "60",
	} {
		p := New(TypeUnavailable, "")
		p.RetryAfter(d)
		if got := p.Header().Get("Retry-After"); got != want {
			t.Errorf("RetryAfter(%v) = %q, want %q: clients repeat no earlier", d, got, want)
		}
	}
}

// A problem is written with its status, its headers and the members of its API.
func TestWrite(t *testing.T) {
	t.Parallel()
	p := own{Problem: Invalid("body.relay", "must be a name"), Relay: "outbox"}
	p.RetryAfter(3 * time.Second)
	w := httptest.NewRecorder()
	Write(w, &p)
	want := `{"type":"` + TypeInvalid + `","title":"Invalid fields","status":422,"detail":"The request has invalid fields; see errors.",` +
		`"errors":[{"message":"must be a name","location":"body.relay"}],"relay":"outbox"}` + "\n"
	if w.Code != 422 || w.Body.String() != want {
		t.Errorf("Write() = %d %s, want 422 %s", w.Code, w.Body, want)
	}
	if h := w.Header(); h.Get("Content-Type") != "application/problem+json" || h.Get("Retry-After") != "3" {
		t.Errorf("the headers are %v", h)
	}
}

func TestHungUp(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancelLate()
	for name, tt := range map[string]struct {
		ctx  context.Context
		err  error
		want bool
	}{
		"the client closed":          {ended, context.Canceled, true},
		"the client closed, wrapped": {ended, fmt.Errorf("read: %w", context.Canceled), true},
		"another error after it":     {ended, errors.New("defect"), false},
		"no error":                   {ended, nil, false},
		"cancelled by the service":   {t.Context(), context.Canceled, false},
		"out of time":                {late, context.DeadlineExceeded, false},
		"cancelled, out of time":     {late, context.Canceled, false},
	} {
		if got := HungUp(tt.ctx, tt.err); got != tt.want {
			t.Errorf("%s: HungUp() = %v, want %v", name, got, tt.want)
		}
	}
}

// Problems that huma makes get the type of their status, or the one of RFC 9457 without a meaning;
// a type that is set is kept.
func TestTyped(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		400: TypeMalformed, 408: TypeTooSlow, 413: TypeTooLarge, 415: TypeMedia, 422: TypeInvalid, 500: TypeInternal, 418: "about:blank",
	} {
		got, err := SetProblemTypes(nil, "", &huma.ErrorModel{Status: status})
		if e, ok := got.(*huma.ErrorModel); err != nil || !ok || e.Type != want {
			t.Errorf("the type of status %d is %+v, %v, want %s", status, got, err, want)
		}
	}
	set := &huma.ErrorModel{Status: 400, Type: TypeHost}
	if got, err := SetProblemTypes(nil, "", set); got != set || err != nil || set.Type != TypeHost {
		t.Errorf("a type that is set becomes %+v, %v", got, err)
	}
	if got, err := SetProblemTypes(nil, "", "no problem"); got != "no problem" || err != nil {
		t.Errorf("a response that is no problem becomes %v, %v", got, err)
	}
}

// letter is the body of the test API.
type letter struct {
	Text string `json:"text" maxLength:"5"`
}

// testAPI is an API with everything of this package that changes requests and problems.
func testAPI(t *testing.T) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	cfg := huma.DefaultConfig("test", "1")
	cfg.CreateHooks = nil
	Discreet(&cfg)
	BrokenBodies(&cfg)
	cfg.Transformers = append(cfg.Transformers, SetProblemTypes)
	api := humago.New(mux, cfg)
	api.UseMiddleware(WholeBodies(func(ctx huma.Context, detail string) {
		p := New(TypeTooLarge, detail)
		Answer(ctx, &p)
	}))
	api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
		if errs := OneKey(ctx); len(errs) > 0 {
			_ = huma.WriteErr(api, ctx, http.StatusUnprocessableEntity, "", errs...)
			return
		}
		next(ctx)
	})
	huma.Register(api, huma.Operation{OperationID: "write", Method: http.MethodPost, Path: "/letters", MaxBodyBytes: 40}, func(_ context.Context, in *struct{ Body letter }) (*struct{ Body letter }, error) {
		return &struct{ Body letter }{in.Body}, nil
	})
	huma.Register(api, huma.Operation{OperationID: "large", Method: http.MethodPost, Path: "/large"}, func(context.Context, *struct{ Body letter }) (*struct{}, error) {
		return nil, nil
	})
	CompleteDocument(api.OpenAPI())
	return mux
}

// brokenBody is a body whose read fails after its text.
type brokenBody struct {
	io.Reader
	err error
}

func (f *brokenBody) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = f.err
	}
	return n, err
}

func (f *brokenBody) Close() error { return nil }

func TestAPI_Bodies(t *testing.T) {
	t.Parallel()
	api := testAPI(t)
	for name, tt := range map[string]struct {
		path, body string
		err        error // of the read after the body; nil is its end
		length     int64 // 0 is that of the body
		keys       []string
		code       int
		kind       string
		contains   string
	}{
		"whole":                     {path: "/letters", body: `{"text":"hello"}`, code: 200, contains: `"hello"`},
		"a key":                     {path: "/letters", body: `{"text":"hello"}`, keys: []string{"k-1"}, code: 200},
		"two keys":                  {path: "/letters", body: `{"text":"hello"}`, keys: []string{"a", "b"}, code: 422, kind: TypeInvalid, contains: `"header.Idempotency-Key"`},
		"the same key twice":        {path: "/letters", body: `{"text":"hello"}`, keys: []string{"a", "a"}, code: 422, kind: TypeInvalid},
		"an empty key":              {path: "/letters", body: `{"text":"hello"}`, keys: []string{""}, code: 422, kind: TypeInvalid, contains: "1 to 255 printable ASCII"},
		"announced as too large":    {path: "/letters", body: ``, length: 41, code: 413, kind: TypeTooLarge, contains: "The body has 41 bytes; the limit is 40."},
		"just below the limit":      {path: "/letters", body: `{"text":"hello"}` + strings.Repeat(" ", 23), code: 200},
		"beyond the general limit":  {path: "/large", body: ``, length: 1<<20 + 1, code: 413, kind: TypeTooLarge, contains: "the limit is 1048576."},
		"broken off":                {path: "/letters", body: `{"text":"he`, err: io.ErrUnexpectedEOF, length: 30, code: 400, kind: TypeMalformed, contains: "incomplete"},
		"badly framed":              {path: "/letters", body: `{"text":"he`, err: errors.New("invalid chunk"), length: -1, code: 400, kind: TypeMalformed, contains: "incomplete"},
		"too slow":                  {path: "/letters", body: `{"text":"he`, err: &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, length: 30, code: 408, kind: TypeTooSlow},
		"no JSON":                   {path: "/letters", body: `{"text":`, code: 400, kind: TypeMalformed},
		"a value that is a secret":  {path: "/letters", body: `{"text":"swordfish"}`, code: 422, kind: TypeInvalid, contains: `"location":"body.text"`},
		"a name that is no letters": {path: "/letters", body: `{"text":"a","<b>x</b>":1}`, code: 422, kind: TypeInvalid, contains: "unexpected property"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, tt.path, bytes.NewReader([]byte(tt.body)))
		if tt.err != nil {
			r.Body = &brokenBody{strings.NewReader(tt.body), tt.err}
		}
		if tt.length != 0 {
			r.ContentLength = tt.length
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header["Idempotency-Key"] = tt.keys
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		var got struct{ Type string }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if w.Code != tt.code || got.Type != tt.kind || !strings.Contains(w.Body.String(), tt.contains) {
			t.Errorf("%s: %d %s, want %d with type %q and %q", name, w.Code, w.Body, tt.code, tt.kind, tt.contains)
		}
		if tt.code == 422 && (strings.Contains(w.Body.String(), "swordfish") || strings.Contains(w.Body.String(), "<b>")) {
			t.Errorf("%s: the problem repeats what was sent: %s", name, w.Body)
		}
	}
}

// The description of an API has no member for values that its responses omit.
func TestCompleteDocument_Discreet(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	testAPI(t).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/openapi.json", nil))
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	detail := doc.Components.Schemas["ErrorDetail"].Properties
	if _, ok := detail["value"]; ok || detail["location"] == nil || detail["message"] == nil {
		t.Errorf("a detail is described with %v, want location and message only", detail)
	}
}

// Responses that are problems have the type of the API's own document, and those after
// which a client waits have the header.
func TestDescribe(t *testing.T) {
	t.Parallel()
	api := humago.New(http.NewServeMux(), huma.DefaultConfig("test", "1"))
	got := Describe[own](api, "", 404, 429, 503)
	if len(got) != 3 {
		t.Fatalf("%d responses, want 3", len(got))
	}
	for code, waits := range map[string]bool{"404": false, "429": true, "503": true} {
		r := got[code]
		if r == nil || r.Content["application/problem+json"] == nil || r.Description == "" {
			t.Errorf("%s is described as %+v", code, r)
			continue
		}
		if ref := r.Content["application/problem+json"].Schema.Ref; !strings.HasSuffix(ref, "/Own") {
			t.Errorf("%s has the schema %q, want the API's own", code, ref)
		}
		if _, ok := r.Headers["Retry-After"]; ok != waits {
			t.Errorf("%s describes Retry-After: %v, want %v", code, ok, waits)
		}
	}
}

// Requests without a route get the API's own response with the methods that the mux knows for them.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "order "+r.PathValue("id")) })
	mux.HandleFunc("GET /archive/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "archive") })
	mux.HandleFunc("POST /orders/batch", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "batch") })
	doc := &huma.OpenAPI{Paths: map[string]*huma.PathItem{"/orders/batch": {Post: &huma.Operation{}}}}
	h := Elsewhere(mux, doc, func(w http.ResponseWriter, _ *http.Request, status int, header http.Header) {
		w.WriteHeader(status)
		fmt.Fprint(w, "own ", header.Get("Allow"))
	})
	for request, want := range map[string]string{
		"GET /orders/7":      "200 order 7",
		"HEAD /orders/7":     "200 order 7",
		"POST /orders/7":     "405 own GET, HEAD",
		"POST /orders/batch": "200 batch",
		"GET /orders/batch":  "405 own POST",
		"GET /nothing":       "404 own ",
		"GET /orders/7/8":    "404 own ",
		"GET /archive/x/y":   "200 archive",
	} {
		method, path, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		if got := fmt.Sprintf("%d %s", w.Code, w.Body); got != want {
			t.Errorf("%s = %q, want %q", request, got, want)
		}
	}
}
