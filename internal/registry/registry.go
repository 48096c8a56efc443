package registry

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/sr"
	"golang.org/x/sync/singleflight"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

const (
	// lifetime is the time for which the newest schema of a subject, and a schema that cannot be
	// used, are not read again; unknownTime, that of an id or a reference that the registry does not have.
	lifetime    = 30 * time.Second
	unknownTime = 2 * time.Second
	// RetryAfter is the time without requests after a failure of the registry, the time with
	// requests after that, and the time without another attempt after a failure of one lookup.
	RetryAfter = time.Second
	// staleTime is how long a caller waits for the renewal of an expired entry.
	staleTime = time.Second
	// lookupTime bounds a lookup with its references, and requestTime one request.
	lookupTime  = 5 * time.Second
	requestTime = 3 * time.Second
	// maxRequests bounds the concurrent requests.
	maxRequests = 16
	// maxEntries bounds the cache.
	maxEntries = 1000
	// maxAnswer bounds an answer of the registry.
	maxAnswer = 4 << 20
	// maxReferences bounds the schemas that one refers to, and theirs.
	maxReferences = 100
	// suffix follows the topic in the name of the subject of its payloads.
	suffix = "-value"
)

// ErrUnavailable is wrapped by errors of a registry that does not answer, or refuses the
// credentials. A retry may succeed.
var ErrUnavailable = errors.New("the schema registry is unavailable")

// ErrUnknown is wrapped by errors of an id, subject or version that the registry does not have.
var ErrUnknown = errors.New("it is not in the schema registry")

var (
	// errRefused is wrapped by errors of requests that the registry refuses, or answers too
	// largely, also after a retry.
	errRefused = errors.New("the schema registry refuses the request")
	errWaits   = fmt.Errorf("%w: it has not answered yet", ErrUnavailable)
	// errOther is the error of a schema that is none of a subject.
	errOther = errors.New("it is a schema of other subjects")
)

// ContractError is the reason why a payload does not fit the schema of its topic.
type ContractError struct{ Problem string }

// Error returns the reason.
func (e *ContractError) Error() string { return e.Problem }

// Registry is a client with a cache. It is safe for concurrent use. A nil *Registry has no
// schemas: it accepts every payload, and decodes none.
type Registry struct {
	client *sr.Client
	url    string // without credentials
	log    *slog.Logger
	flight singleflight.Group
	slots  chan struct{} // holds one token for each request
	checks chan struct{} // holds one token for each check, which can take much memory
	now    func() time.Time

	mu struct {
		sync.Mutex
		cache    map[string]entry
		downTill time.Time
		down     error
	}
}

// entry is a cached result of a lookup.
type entry struct {
	value any
	err   error
	till  time.Time // zero without an end
}

// latest is the newest schema of a subject; its id is 0 without such a subject.
type latest struct {
	id     int
	schema *schema
	err    error // the schema cannot be used
}

// New returns a client of the registry at a URL, which may contain user:password. conf, which
// may be nil, is used for https. log receives the schemas that cannot be used. New sends no request.
func New(address string, conf *tls.Config, log *slog.Logger) (*Registry, error) {
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
	r := &Registry{url: strings.TrimSuffix(u.String(), "/"), log: cmp.Or(log, slog.New(slog.DiscardHandler)), slots: make(chan struct{}, maxRequests), checks: make(chan struct{}, runtime.GOMAXPROCS(0)), now: time.Now}
	r.mu.cache = make(map[string]entry)
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

// Load returns nil once the schema of a topic is known, so that a Check need not wait for the
// registry, or an error that wraps ErrUnavailable.
func (r *Registry) Load(ctx context.Context, topic string) error {
	if r == nil {
		return nil
	}
	if _, err := r.latest(ctx, topic+suffix); errors.Is(err, ErrUnavailable) {
		return err
	}
	return nil
}

// WithSchema returns headers with the URL of a schema, or headers if the URL is empty.
func WithSchema(headers map[string]string, schemaURL string) map[string]string {
	if schemaURL == "" {
		return headers
	}
	out := make(map[string]string, len(headers)+1)
	maps.Copy(out, headers)
	out[outbox.HeaderDataSchema] = schemaURL
	return out
}

// Check returns the URL of the schema that a payload for a topic fits. It is "" if the topic has
// none, or if the schema cannot be used here, so that the payload is not checked. The error is a
// *ContractError, or wraps ErrUnavailable.
func (r *Registry) Check(ctx context.Context, topic string, payload []byte) (schemaURL string, err error) {
	if r == nil {
		return "", nil
	}
	schemaURL, err = r.check(ctx, topic+suffix, payload)
	if err == nil || errors.Is(err, ErrUnavailable) || errors.As(err, new(*ContractError)) {
		return schemaURL, err
	}
	return "", nil // a limit of this program, or of its permissions, is no defect of the payload
}

// CheckEdited is Check of the edited payload of an event, and returns its headers with the URL of
// the schema, unless they have that of another place. A payload that is stored outside of the
// event is not checked. The errors begin with a verb: their subject is the payload.
func (r *Registry) CheckEdited(ctx context.Context, topic string, payload []byte, headers map[string]string) (map[string]string, error) {
	if _, stored := headers[outbox.HeaderDataRef]; stored || r == nil {
		return headers, nil
	}
	schemaURL, err := r.Check(ctx, topic, payload)
	if errors.Is(err, ErrUnavailable) {
		err = fmt.Errorf("cannot be checked now; retry later: %w", err)
	}
	if old, ok := headers[outbox.HeaderDataSchema]; err != nil || ok && !strings.HasPrefix(old, r.url+"/") {
		return headers, err
	}
	return WithSchema(headers, schemaURL), nil
}

func (r *Registry) check(ctx context.Context, subject string, payload []byte) (schemaURL string, err error) {
	newest, err := r.latest(ctx, subject)
	if err != nil || newest.id == 0 {
		return "", err
	}
	id, s, body := newest.id, newest.schema, payload
	framed, rest, ok := header(payload)
	switch {
	case ok && framed != newest.id:
		if s, err = r.member(ctx, framed, subject, newest.id); err != nil {
			return "", err
		}
		id, body = framed, rest
	case newest.err != nil:
		return "", newest.err
	case ok:
		body = rest
	case s.kind != sr.TypeJSON:
		return "", refuse("must be in the wire format of the schema registry: %s has a schema of type %s, so send a byte 0, the id of the schema in four bytes, and the encoded value as payload_base64", subject, s.kind)
	}
	if s.unfit != nil {
		return "", s.unfit
	}
	r.checks <- struct{}{}
	defer func() { <-r.checks }()
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

// member returns the schema of an id if it is one of the subject's.
func (r *Registry) member(ctx context.Context, id int, subject string, newest int) (*schema, error) {
	_, err := lookup(ctx, r, fmt.Sprintf("schema %d of %s", id, subject), func(ctx context.Context) (out struct{}, err error) {
		versions, err := ask(ctx, r, func(ctx context.Context) ([]sr.SubjectVersion, error) { return r.client.SchemaVersionsByID(ctx, id) })
		if err == nil && !slices.ContainsFunc(versions, func(v sr.SubjectVersion) bool { return v.Subject == subject }) {
			err = errOther
		}
		return out, err
	})
	if errors.Is(err, ErrUnknown) || errors.Is(err, errOther) {
		return nil, refuse("has schema %d, which is none of %s; its newest one is %d", id, subject, newest)
	}
	if err != nil {
		return nil, err
	}
	return r.schema(ctx, id)
}

func refuse(format string, args ...any) error { return &ContractError{fmt.Sprintf(format, args...)} }

// header splits a payload in the wire format.
func header(payload []byte) (id int, rest []byte, ok bool) {
	id, rest, err := new(sr.ConfluentHeader).DecodeID(payload)
	return id, rest, err == nil
}

// Decode decodes the payload of an event in the wire format into its Data; the payload itself is
// then its Base64. The event does not change if it cannot be decoded. The error wraps
// ErrUnavailable if a retry may succeed, ErrUnknown without its schema, and is nil for payloads in other formats. A ctx that has
// ended permits cached schemas alone.
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
		return nil, fmt.Errorf("schema %d: %w", id, err)
	}
	data, err := s.decode(rest)
	if err != nil {
		return nil, fmt.Errorf("schema %d: %w", id, err)
	}
	return data, nil
}

// latest returns the newest schema of a subject.
func (r *Registry) latest(ctx context.Context, subject string) (latest, error) {
	return lookup(ctx, r, "newest schema of "+subject, func(ctx context.Context) (out latest, err error) {
		found, err := ask(ctx, r, func(ctx context.Context) (sr.SubjectSchema, error) { return r.client.SchemaByVersion(ctx, subject, -1) })
		if errors.Is(err, ErrUnknown) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out.id = found.ID
		out.schema, out.err = r.readCompiled(ctx, found.ID, func(context.Context) (sr.Schema, error) { return found.Schema, nil })
		if errors.Is(out.err, ErrUnavailable) {
			return out, out.err
		}
		return out, nil
	})
}

// schema returns the schema of an id. The error wraps ErrUnavailable if a retry may succeed.
func (r *Registry) schema(ctx context.Context, id int) (*schema, error) {
	return r.readCompiled(ctx, id, func(ctx context.Context) (sr.Schema, error) {
		return ask(ctx, r, func(ctx context.Context) (sr.Schema, error) { return r.client.SchemaByID(ctx, id) })
	})
}

func (r *Registry) readCompiled(ctx context.Context, id int, read func(context.Context) (sr.Schema, error)) (*schema, error) {
	return lookup(ctx, r, "schema "+strconv.Itoa(id), func(ctx context.Context) (*schema, error) {
		found, err := read(ctx)
		if err != nil {
			return nil, err
		}
		refs, err := r.references(ctx, found.References)
		if err != nil {
			return nil, err
		}
		s, err := compile(found, refs)
		if err == nil && s.unfit != nil {
			r.log.Warn("schema cannot be used; payloads are not checked", "schema", id, "err", clip(s.unfit.Error()))
		}
		return s, err
	})
}

// lookup returns the value of a key: a cached one, or that of one read for all callers, which
// continues when ctx ends. An error does not replace a value. While a value is renewed, the
// caller that renews it waits up to staleTime, and others receive the value immediately.
func lookup[T any](ctx context.Context, r *Registry, key string, read func(context.Context) (T, error)) (out T, err error) {
	r.mu.Lock()
	e, ok := r.mu.cache[key]
	stale := ok && e.err == nil
	ended := ctx.Err() != nil // it must not start reads that nothing waits for
	if ok && (e.till.IsZero() || r.now().Before(e.till)) || stale && ended {
		r.mu.Unlock()
		return e.value.(T), e.err
	}
	if stale {
		e.till = r.now().Add(lookupTime)
		r.mu.cache[key] = e
	}
	r.mu.Unlock()
	if ended {
		return out, errWaits
	}
	done := r.flight.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTime)
		defer cancel()
		v, err := read(ctx)
		r.store(key, v, err)
		return v, err
	})
	wait := ctx
	if stale {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, staleTime)
		defer cancel()
	}
	select {
	case res := <-done:
		out, err = res.Val.(T), res.Err
	case <-wait.Done():
		err = errWaits
	}
	if err != nil && stale {
		return e.value.(T), nil
	}
	return out, err
}

// store adds an entry, in place of another one of a full cache.
func (r *Registry) store(key string, value any, err error) {
	e := entry{value: value, err: err}
	switch _, subject := value.(latest); {
	case errors.Is(err, ErrUnavailable):
		e.till = r.now().Add(RetryAfter)
	case errors.Is(err, ErrUnknown), errors.Is(err, errOther):
		e.till = r.now().Add(unknownTime)
	case err != nil:
		r.log.Warn("schema cannot be used; payloads are not checked", "lookup", key, "err", err)
		fallthrough
	case subject:
		e.till = r.now().Add(lifetime)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old, there := r.mu.cache[key]
	if there && err != nil && old.err == nil {
		e.value, e.err = old.value, nil
	}
	if !there && len(r.mu.cache) >= maxEntries {
		victim := ""
		for k, other := range r.mu.cache { // errors first, which any producer can cause
			if victim = k; other.err != nil {
				break
			}
		}
		delete(r.mu.cache, victim)
	}
	r.mu.cache[key] = e
}

// reference is a schema that another one refers to by a name.
type reference struct {
	name string
	sr.Schema
}

// references returns the schemas of references and theirs, each after the ones that it needs.
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
			// Each is cached, so that an attempt continues where the one before ended.
			found, err := lookup(ctx, r, fmt.Sprintf("version %d of %s", ref.Version, ref.Subject), func(ctx context.Context) (sr.SubjectSchema, error) {
				return ask(ctx, r, func(ctx context.Context) (sr.SubjectSchema, error) {
					return r.client.SchemaByVersion(ctx, ref.Subject, ref.Version)
				})
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

// ask sends a request, unless the registry failed within RetryAfter. The error wraps ErrUnknown,
// errRefused or ErrUnavailable.
func ask[T any](ctx context.Context, r *Registry, request func(context.Context) (T, error)) (out T, err error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return out, fmt.Errorf("%w: too many requests wait", ErrUnavailable)
	}
	r.mu.Lock()
	down, till := r.mu.down, r.mu.downTill
	r.mu.Unlock()
	if r.now().Before(till) {
		return out, down
	}
	if out, err = request(ctx); err == nil {
		return out, nil
	}
	status, code := 0, 0
	if refused, ok := errors.AsType[*sr.ResponseError](err); ok {
		status, code = refused.StatusCode, refused.ErrorCode
	}
	own := code == status || code/100 == status // others are of a proxy, and may end
	switch {
	case status == http.StatusNotFound && code >= sr.ErrSubjectNotFound.Code && code <= sr.ErrSchemaNotFound.Code:
		return out, ErrUnknown
	case own && (status == http.StatusBadRequest || status == http.StatusForbidden || status == http.StatusUnprocessableEntity), errors.As(err, new(*http.MaxBytesError)):
		return out, fmt.Errorf("%w: %s", errRefused, clip(err.Error()))
	}
	network := errors.As(err, new(net.Error))
	err = fmt.Errorf("%w: %s", ErrUnavailable, clip(err.Error()))
	// The end of a lookup, and the answer to one request, are no failure for others.
	if network && ctx.Err() == nil || status == http.StatusUnauthorized || status == http.StatusTooManyRequests || status >= http.StatusInternalServerError && !own {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.now().After(r.mu.downTill.Add(RetryAfter)) { // one request that always fails must not stop others
			r.mu.down, r.mu.downTill = err, r.now().Add(RetryAfter)
		}
	}
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
