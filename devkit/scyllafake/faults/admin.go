package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// maxBody limits a request's body, in bytes.
const maxBody = 1 << 20

const help = `Faults of a scyllafake node. Bodies are JSON; durations are texts such as "1.5s".

GET    /rules                            the rules, in order, and how often each hit
POST   /rules                            add one: {"match": {…}, "effect": {…}, "count": 1}
DELETE /rules, /rules/{id}               remove all (and thaw), or one
GET    /scenarios                        rules that have names
POST   /scenarios/{name}                 add one: {"later": ["64s", "64s"], "delay": "0s"}
GET    /clock        PUT /clock          {"skew": "-3s"}
GET    /generations  POST /generations   {"in": "2s", "extra_tokens": 4}
GET    /tablets/{keyspace}/{table}       the number of tablets
POST   /tablets/{keyspace}/{table}/split, …/merge   {"in": "2s"}
GET    /freeze       POST /freeze, /thaw
`

// Listen opens the address of the fault injection API. Only loopback addresses are
// allowed, because its clients can make the node lose writes.
func Listen(addr string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("admin address %q: %w", addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("admin address %q: must be a loopback address, such as 127.0.0.1", addr)
	}
	return net.Listen("tcp", addr)
}

// Handler returns the fault injection API; GET / describes its use. An error has a JSON
// body {"error": "…"}: 400 for an invalid request, 404 for an unknown object.
func (in *Injector) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			v, err := f(r)
			status := http.StatusOK
			switch {
			case errors.Is(err, ErrNoRule), errors.Is(err, errNotFound):
				status = http.StatusNotFound
			case err != nil:
				status = http.StatusBadRequest
			case r.Method == http.MethodPost:
				status = http.StatusCreated
			}
			if err != nil {
				v = map[string]string{"error": err.Error()}
			}
			writeJSON(w, status, v)
		})
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, help)
	})
	handle("/", func(r *http.Request) (any, error) {
		return nil, fmt.Errorf("%s %s: %w; GET / lists all paths", r.Method, r.URL.Path, errNotFound)
	})
	handle("GET /rules", in.getRules)
	handle("POST /rules", in.postRule)
	handle("DELETE /rules", func(*http.Request) (any, error) {
		in.Clear()
		return struct{}{}, nil
	})
	handle("DELETE /rules/{id}", in.deleteRule)
	handle("GET /scenarios", func(*http.Request) (any, error) { return scenarioHelp(), nil })
	handle("POST /scenarios/{name}", in.postScenario)
	handle("GET /freeze", in.getFreeze)
	handle("POST /freeze", func(r *http.Request) (any, error) { in.Freeze(); return in.getFreeze(r) })
	handle("POST /thaw", func(r *http.Request) (any, error) { in.Thaw(); return in.getFreeze(r) })
	if in.clock != nil {
		handle("GET /clock", in.getClock)
		handle("PUT /clock", in.putClock)
	}
	if in.node != nil {
		handle("GET /generations", in.getGenerations)
		handle("POST /generations", in.postGeneration)
		handle("GET /tablets/{keyspace}/{table}", in.getTablets)
		handle("POST /tablets/{keyspace}/{table}/split", func(r *http.Request) (any, error) { return in.resize(r, false) })
		handle("POST /tablets/{keyspace}/{table}/merge", func(r *http.Request) (any, error) { return in.resize(r, true) })
	}
	return mux
}

var errNotFound = errors.New("not found")

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may be gone.
	_ = json.NewEncoder(w).Encode(v)
}

// readJSON reads a body into v. An empty body does not change v.
func readJSON(r *http.Request, v any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	switch err := d.Decode(v); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("the body is not understood: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the body holds more than one JSON value")
	}
	return nil
}

type idJSON struct {
	ID int `json:"id"`
}

func (in *Injector) getRules(*http.Request) (any, error) {
	out := []statusJSON{}
	for _, s := range in.Rules() {
		out = append(out, newStatusJSON(s))
	}
	return out, nil
}

func (in *Injector) postRule(r *http.Request) (any, error) {
	var j ruleJSON
	if err := readJSON(r, &j); err != nil {
		return nil, err
	}
	rule, err := j.rule()
	if err != nil {
		return nil, err
	}
	id, err := in.Add(rule)
	return idJSON{id}, err
}

func (in *Injector) deleteRule(r *http.Request) (any, error) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil {
		return nil, fmt.Errorf("rule id %q is not a number", r.PathValue("id"))
	}
	return struct{}{}, in.Remove(id)
}

type freezeJSON struct {
	Frozen bool `json:"frozen"`
}

func (in *Injector) getFreeze(*http.Request) (any, error) { return freezeJSON{in.Frozen()}, nil }

type clockJSON struct {
	Skew duration  `json:"skew"`
	Now  time.Time `json:"now,omitzero"`
}

func (in *Injector) getClock(*http.Request) (any, error) {
	return clockJSON{duration(in.clock.Skew()), in.clock.Now()}, nil
}

func (in *Injector) putClock(r *http.Request) (any, error) {
	var j struct {
		Skew *duration `json:"skew"`
	}
	if err := readJSON(r, &j); err != nil {
		return nil, err
	}
	if j.Skew == nil {
		return nil, errors.New(`skew is missing: {"skew": "-3s"}`)
	}
	in.clock.SetSkew(time.Duration(*j.Skew))
	return in.getClock(r)
}

func (in *Injector) getGenerations(*http.Request) (any, error) {
	return map[string]any{"starts": in.node.Generations()}, nil
}

type startJSON struct {
	Start time.Time `json:"start"`
}

func (in *Injector) postGeneration(r *http.Request) (any, error) {
	var j generationJSON
	if err := readJSON(r, &j); err != nil {
		return nil, err
	}
	if j.In < 0 {
		return nil, errors.New("in: must not be negative")
	}
	start, err := in.node.NewGeneration(Generation{In: time.Duration(j.In), ExtraTokens: j.ExtraTokens})
	return startJSON{start}, err
}

func (in *Injector) getTablets(r *http.Request) (any, error) {
	n, err := in.node.Tablets(r.PathValue("keyspace"), r.PathValue("table"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotFound, err)
	}
	return map[string]int{"tablets": n}, nil
}

func (in *Injector) resize(r *http.Request, merge bool) (any, error) {
	var j struct {
		In duration `json:"in"`
	}
	if err := readJSON(r, &j); err != nil {
		return nil, err
	}
	if j.In < 0 {
		return nil, errors.New("in: must not be negative")
	}
	start, err := in.node.Resize(Resize{
		Keyspace: r.PathValue("keyspace"), Table: r.PathValue("table"), Merge: merge, In: time.Duration(j.In),
	})
	return startJSON{start}, err
}
