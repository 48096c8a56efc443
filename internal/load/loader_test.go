package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fakeAPI answers like the order API and records the requests.
type fakeAPI struct {
	mu      sync.Mutex
	keys    map[string]int
	cancels []string
	busy    int // answer 503 so many times first
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys[r.Header.Get("Idempotency-Key")]++
	if f.busy > 0 {
		f.busy--
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"detail":"not now"}`)
		return
	}
	if id, ok := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/v1/orders/"), "/cancel"); ok {
		f.cancels = append(f.cancels, id)
		fmt.Fprint(w, `{}`)
		return
	}
	var o struct {
		Invoice string `json:"invoice"`
	}
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Invoice == "bad" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"detail":"bad fields","errors":[{"location":"body.lines","message":"too few"}]}`)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":"id-%s"}`, o.Invoice)
}

// A line that is not taken in so many attempts is rejected.
func TestLoader_GivesUpALine(t *testing.T) {
	t.Parallel()
	api := &fakeAPI{keys: map[string]int{}, busy: 2}
	srv := httptest.NewServer(api)
	defer srv.Close()
	var got error
	l := NewLoader(srv.URL, 0, func(_ int, err error) { got = err })
	l.Attempts = 2
	if err := l.Load(t.Context(), strings.NewReader(`{"op":"create","order":{"invoice":"1"}}`)); err != nil {
		t.Fatal(err)
	}
	if s := l.Summary(0); s.Created != 0 || s.Rejected != 1 || s.Retried != 1 || got == nil || !strings.Contains(got.Error(), "not now") {
		t.Errorf("summary %+v, %v, want one line rejected with the answer, tried again once", s, got)
	}
}

func TestLoader_SkipsBrokenLinesAndLoadsTheRest(t *testing.T) {
	t.Parallel()
	api := &fakeAPI{keys: map[string]int{}, busy: 3}
	srv := httptest.NewServer(api)
	defer srv.Close()
	lines := []string{
		`{"op":"create","order":{"invoice":"1"}}`, // 1
		`{"op":"create","order":`,                 // 2: broken
		``,                                        // 3: empty
		`{"op":"create","order":{"invoice":"2","x":"` + strings.Repeat("x", maxLine) + `"}}`, // 4: too long
		`{"op":"create","order":{"invoice":"bad"}}`,                                          // 5: rejected
		`{"op":"cancel","invoice":"1"}`,                                                      // 6
		`{"op":"cancel","invoice":"bad"}`,                                                    // 7: of a rejected order
		`{"op":"cancel","invoice":"none"}`,                                                   // 8: of no order
		`{"op":"ship","invoice":"1"}`,                                                        // 9: no such op
		`{"op":"create","order":{"invoice":"3"}}`,                                            // 10, without a newline
	}
	var bad []int
	l := NewLoader(srv.URL, 0, func(n int, err error) { bad = append(bad, n) })
	if err := l.Load(t.Context(), strings.NewReader(strings.Join(lines, "\n"))); err != nil {
		t.Fatal(err)
	}
	slices.Sort(bad)
	if want := []int{2, 4, 5, 7, 8, 9}; !slices.Equal(bad, want) {
		t.Errorf("lines %v were reported, want %v", bad, want)
	}
	s := l.Summary(0)
	if s.Created != 2 || s.Cancelled != 1 || s.Rejected != 6 || s.Retried != 3 {
		t.Errorf("summary %+v, want 2 created, 1 cancelled, 6 rejected, 3 tried again", s)
	}
	if !slices.Equal(api.cancels, []string{"id-1"}) {
		t.Errorf("cancelled %v, want the id that creating invoice 1 gave", api.cancels)
	}
	if n := api.keys[""]; n != 0 || len(api.keys) != 4 {
		t.Errorf("%d requests without an Idempotency-Key, %d keys, want 0 and 4: a repeated request keeps its key", n, len(api.keys))
	}
}

func TestLoader_NamesTheFieldsThatWereRefused(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(&fakeAPI{keys: map[string]int{}})
	defer srv.Close()
	var got error
	l := NewLoader(srv.URL, 0, func(_ int, err error) { got = err })
	if err := l.Load(t.Context(), strings.NewReader(`{"op":"create","order":{"invoice":"bad"}}`)); err != nil {
		t.Fatal(err)
	}
	if got == nil || !strings.Contains(got.Error(), "body.lines: too few") {
		t.Errorf("reported %v, want it to name body.lines", got)
	}
}

func TestGunzip_TakesPlainAndEmptyInput(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "x", "{}\n"} {
		r, err := Gunzip(strings.NewReader(in))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r); err != nil || string(b) != in {
			t.Errorf("gunzip(%q) read %q, %v", in, b, err)
		}
	}
}

// A load ends when the API answers no attempt for a line, instead of failing every line.
func TestLoader_StopsWithoutAnAPI(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(&fakeAPI{keys: map[string]int{}})
	srv.Close()
	rejected := 0
	l := NewLoader(srv.URL, 0, func(n int, err error) {
		rejected++
		if got := err.Error(); strings.Count(got, "does not answer") != 1 {
			t.Errorf("line %d: %s", n, got)
		}
	})
	l.Attempts = 1
	const lines = 1000
	err := l.Load(t.Context(), strings.NewReader(strings.Repeat(`{"op":"create","order":{"invoice":"1"}}`+"\n", lines)))
	if _, ok := errors.AsType[*UnreachableError](err); !ok || rejected == 0 || rejected == lines {
		t.Errorf("Load() = %v after %d rejected lines of %d", err, rejected, lines)
	}
}
