package registry

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/sr"
	"golang.org/x/sync/singleflight"

	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
)

const (
	// lifetime is the time for which the newest schema of a subject, and an unknown id or
	// subject, are not read again.
	lifetime = 30 * time.Second
	// RetryAfter is the time without requests after one that failed.
	RetryAfter = time.Second
	// lookupTime bounds a lookup with its references, and requestTime one request.
	lookupTime  = 5 * time.Second
	requestTime = 3 * time.Second
	// maxEntries bounds the cached ids, and the cached subjects.
	maxEntries = 500
	// maxAnswer bounds an answer of the registry.
	maxAnswer = 4 << 20
	// maxReferences bounds the schemas that one refers to, and theirs.
	maxReferences = 100
)

// ErrUnavailable is wrapped by errors of a registry that does not answer, or refuses the
// credentials. A retry may succeed.
var ErrUnavailable = errors.New("the schema registry is unavailable")

// errUnknown is the error of an unknown id or subject.
var errUnknown = errors.New("the schema registry does not know it")

// ContractError is the reason why a payload does not fit the schema of its topic.
type ContractError struct{ Problem string }

// Error returns the reason.
func (e *ContractError) Error() string { return e.Problem }

// Registry is a client with a cache. It is safe for concurrent use. A nil *Registry has no
// schemas: it accepts every payload, and decodes none.
type Registry struct {
	client *sr.Client
	url    string // without credentials
	flight singleflight.Group
	now    func() time.Time

	mu struct {
		sync.Mutex
		schemas  map[int]entry[*schema]
		subjects map[string]entry[latest]
		downTill time.Time
		down     error
	}
}

// entry is a cached result of a lookup.
type entry[T any] struct {
	value T
	err   error // of a registry that answered
	at    time.Time
}

// latest is the newest schema of a subject; its id is 0 without such a subject.
type latest struct {
	id     int
	schema *schema
	err    error // the schema cannot be used
}

// New returns a client of the registry at a URL, which may contain user:password. conf, which
// may be nil, is used for https. It sends no request.
func New(address string, conf *tls.Config) (*Registry, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("use a URL such as https://user:password@registry.example.com:8081") // without its value, which is secret
	}
	opts := []sr.ClientOpt{sr.UserAgent("scylla-outbox")}
	if u.User != nil {
		password, _ := u.User.Password()
		opts = append(opts, sr.BasicAuth(u.User.Username(), password))
		u.User = nil
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	if conf != nil {
		t.TLSClientConfig = conf.Clone()
	}
	r := &Registry{url: strings.TrimSuffix(u.String(), "/"), now: time.Now}
	r.mu.schemas, r.mu.subjects = make(map[int]entry[*schema]), make(map[string]entry[latest])
	r.client, err = sr.NewClient(append(opts, sr.URLs(r.url), sr.HTTPClient(&http.Client{
		Timeout: requestTime, Transport: bounded{t},
		// The credentials are for the URL of the setting alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}))...)
	return r, err
}

// bounded limits the answers that a client reads.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// URL returns the address without credentials.
func (r *Registry) URL() string { return r.url }

// Ping returns nil if the registry answers and accepts the credentials.
func (r *Registry) Ping(ctx context.Context) error {
	if _, err := r.client.SupportedTypes(ctx); err != nil {
		return fmt.Errorf("%w: %s", ErrUnavailable, clip(err.Error()))
	}
	return nil
}

// Check returns the URL of the schema that a payload for a topic fits, or "" if the topic has
// none. The error is a *ContractError, or wraps ErrUnavailable.
func (r *Registry) Check(ctx context.Context, topic string, payload []byte) (schemaURL string, err error) {
	if r == nil {
		return "", nil
	}
	subject := topic + "-value"
	newest, err := r.latest(ctx, subject)
	if err != nil || newest.id == 0 {
		return "", err
	}
	if newest.err != nil {
		return "", refuse("cannot be checked: schema %d of %s cannot be used: %v", newest.id, subject, newest.err)
	}
	id, s, body := newest.id, newest.schema, payload
	framed, rest, ok := header(payload)
	switch {
	case ok:
		if s, err = r.belongs(ctx, framed, subject, newest); err != nil {
			return "", err
		}
		id, body = framed, rest
	case s.kind != sr.TypeJSON:
		return "", refuse("must be in the wire format of the schema registry: %s has a schema of type %s, so send a byte 0, the id of the schema in four bytes, and the encoded value as payload_base64", subject, s.kind)
	}
	if s.kind == sr.TypeJSON {
		err = s.fit(body)
	} else {
		_, err = s.decode(body)
	}
	if err != nil {
		return "", refuse("does not fit schema %d of %s: %s", id, subject, clip(err.Error()))
	}
	return r.url + "/schemas/ids/" + strconv.Itoa(id), nil
}

// belongs returns the schema of an id if it is one of the subject's.
func (r *Registry) belongs(ctx context.Context, id int, subject string, newest latest) (*schema, error) {
	if id == newest.id {
		return newest.schema, nil
	}
	s, err := r.schema(ctx, id)
	if errors.Is(err, ErrUnavailable) {
		return nil, err
	}
	if err != nil {
		return nil, refuse("cannot be checked: schema %d: %v", id, err)
	}
	if r.known(s, subject) {
		return s, nil
	}
	versions, err := ask(ctx, r, func(ctx context.Context) ([]sr.SubjectVersion, error) { return r.client.SchemaVersionsByID(ctx, id) })
	if errors.Is(err, ErrUnavailable) {
		return nil, err
	}
	if !slices.ContainsFunc(versions, func(v sr.SubjectVersion) bool { return v.Subject == subject }) {
		return nil, refuse("has schema %d, which is none of %s; its newest one is %d", id, subject, newest.id)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(s.subjects) < maxEntries {
		s.subjects = append(s.subjects, subject)
	}
	return s, nil
}

func (r *Registry) known(s *schema, subject string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(s.subjects, subject)
}

func refuse(format string, args ...any) error { return &ContractError{fmt.Sprintf(format, args...)} }

// header splits a payload in the wire format.
func header(payload []byte) (id int, rest []byte, ok bool) {
	id, rest, err := new(sr.ConfluentHeader).DecodeID(payload)
	return id, rest, err == nil
}

// Decode decodes the payload of an event in the wire format into its Data; the payload itself is
// then its Base64. The event does not change if it cannot be decoded. The error wraps
// ErrUnavailable if a retry may succeed, and is nil for payloads in other formats.
func (r *Registry) Decode(ctx context.Context, e *kafkarecord.Event) error {
	if r == nil || e.Data != nil {
		return nil
	}
	if e.Base64 == nil && (e.Text == nil || *e.Text == "" || (*e.Text)[0] != 0) {
		return nil
	}
	raw := e.Payload()
	data, err := r.JSON(ctx, raw)
	if data != nil {
		e.Data, e.Text, e.Base64 = data, nil, raw
	}
	return err
}

// JSON returns the JSON of a payload in the wire format, and nil without an error for other
// payloads. The error wraps ErrUnavailable if a retry may succeed.
func (r *Registry) JSON(ctx context.Context, payload []byte) (json.RawMessage, error) {
	if r == nil {
		return nil, nil
	}
	id, rest, ok := header(payload)
	if !ok {
		return nil, nil
	}
	s, err := r.schema(ctx, id)
	if err != nil {
		return nil, err
	}
	data, err := s.decode(rest)
	if err != nil {
		return nil, fmt.Errorf("schema %d: %w", id, err)
	}
	return data, nil
}

// latest returns the newest schema of a subject.
func (r *Registry) latest(ctx context.Context, subject string) (latest, error) {
	r.mu.Lock()
	e, ok := r.mu.subjects[subject]
	r.mu.Unlock()
	if ok && r.now().Sub(e.at) < lifetime {
		return e.value, nil
	}
	v, err, _ := r.flight.Do("subject "+subject, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTime)
		defer cancel()
		found, err := ask(ctx, r, func(ctx context.Context) (sr.SubjectSchema, error) { return r.client.SchemaByVersion(ctx, subject, -1) })
		out := latest{id: found.ID}
		if errors.Is(err, errUnknown) {
			out, err = latest{}, nil
		} else if err == nil {
			if out.schema, out.err = r.compiled(ctx, found.ID, found.Schema); errors.Is(out.err, ErrUnavailable) {
				err = out.err
			}
		}
		if err != nil {
			return latest{}, err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		put(r.mu.subjects, subject, entry[latest]{value: out, at: r.now()})
		return out, nil
	})
	if err != nil && ok { // stale while the registry is unreachable
		return e.value, nil
	}
	return v.(latest), err
}

// schema returns the schema of an id. The error wraps ErrUnavailable if a retry may succeed.
func (r *Registry) schema(ctx context.Context, id int) (*schema, error) {
	if e, ok := r.cached(id); ok {
		return e.value, e.err
	}
	v, err, _ := r.flight.Do("id "+strconv.Itoa(id), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTime)
		defer cancel()
		found, err := ask(ctx, r, func(ctx context.Context) (sr.Schema, error) { return r.client.SchemaByID(ctx, id) })
		if errors.Is(err, errUnknown) {
			r.store(id, nil, err)
		}
		if err != nil {
			return (*schema)(nil), err
		}
		return r.compiled(ctx, id, found)
	})
	return v.(*schema), err
}

// compiled returns the cached form of a schema that was read.
func (r *Registry) compiled(ctx context.Context, id int, found sr.Schema) (*schema, error) {
	if e, ok := r.cached(id); ok && e.value != nil {
		return e.value, nil
	}
	refs, err := r.references(ctx, found.References)
	var s *schema
	if err == nil {
		s, err = compile(found, refs)
	}
	if errors.Is(err, ErrUnavailable) {
		return nil, err
	}
	r.store(id, s, err)
	return s, err
}

func (r *Registry) cached(id int) (entry[*schema], bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.mu.schemas[id]
	return e, ok && (e.err == nil || r.now().Sub(e.at) < lifetime)
}

func (r *Registry) store(id int, s *schema, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	put(r.mu.schemas, id, entry[*schema]{s, err, r.now()})
}

// put adds an entry, in place of any other one of a full cache.
func put[K comparable, T any](m map[K]entry[T], key K, e entry[T]) {
	if _, there := m[key]; !there && len(m) >= maxEntries {
		for other := range m {
			delete(m, other)
			break
		}
	}
	m[key] = e
}

// reference is a schema that another one refers to by a name.
type reference struct {
	name string
	sr.Schema
}

// references returns the schemas of references and theirs, those that others need first.
func (r *Registry) references(ctx context.Context, list []sr.SchemaReference) (out []reference, err error) {
	seen := make(map[sr.SchemaReference]bool)
	var add func(list []sr.SchemaReference, depth int) error
	add = func(list []sr.SchemaReference, depth int) error {
		for _, ref := range list {
			if seen[ref] {
				continue
			}
			if seen[ref] = true; len(seen) > maxReferences || depth > maxDepth {
				return fmt.Errorf("it refers to more than %d schemas", maxReferences)
			}
			found, err := ask(ctx, r, func(ctx context.Context) (sr.SubjectSchema, error) {
				return r.client.SchemaByVersion(ctx, ref.Subject, ref.Version)
			})
			if err == nil {
				err = add(found.References, depth+1)
			}
			if err != nil {
				return fmt.Errorf("reference %.100q: %w", ref.Name, err)
			}
			out = append(out, reference{ref.Name, found.Schema})
		}
		return nil
	}
	return out, add(list, 0)
}

// ask sends a request, unless one failed within RetryAfter. The error wraps errUnknown or
// ErrUnavailable.
func ask[T any](ctx context.Context, r *Registry, request func(context.Context) (T, error)) (out T, err error) {
	r.mu.Lock()
	down, till := r.mu.down, r.mu.downTill
	r.mu.Unlock()
	if r.now().Before(till) {
		return out, down
	}
	out, err = request(ctx)
	var refused *sr.ResponseError
	switch {
	case err == nil:
		return out, nil
	case errors.As(err, &refused) && (refused.StatusCode == http.StatusNotFound || refused.StatusCode == http.StatusUnprocessableEntity):
		return out, errUnknown
	}
	err = fmt.Errorf("%w: %s", ErrUnavailable, clip(err.Error()))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.down, r.mu.downTill = err, r.now().Add(RetryAfter)
	return out, err
}

// clip bounds the text of another program.
func clip(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "") + "…"
	}
	return s
}

// valid replaces invalid UTF-8, which JSON does not have.
func valid(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
