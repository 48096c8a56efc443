package guard

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

const (
	// All processors are busy if waiting requests that get their places run later than
	// maxLag and than lagOfLatency of the database's latency, on average.
	maxLag       = 250 * time.Microsecond
	lagOfLatency = 0.1
	// lagShare is the share of one request in the average.
	lagShare = 1.0 / 16
	// While processors are busy each refusal increases the time between two refusals by
	// paceStep, otherwise it decreases it, from 0 to maxPace.
	paceStep = 5 * time.Microsecond
	maxPace  = time.Millisecond
	// maxRefusalDelay bounds the delay of a refusal, and minRefusalDelay is the shortest
	// that is worth a timer.
	maxRefusalDelay = 250 * time.Millisecond
	minRefusalDelay = time.Millisecond
	// maxPatient bounds the connections that are refused without a delay within retryAfter,
	// and with them the processor time of these refusals: less than a tenth of a processor
	// if each is a new connection.
	maxPatient = 1024
)

// overload is the detail of the problem of a refused request.
const overload = "The service is overloaded. This request was not started; retry after the seconds of Retry-After. " +
	"A connection that retries earlier may wait for its refusal."

// Problem returns the problem document of e.
func (e *OverloadedError) Problem() httpapi.Problem {
	p := httpapi.New(httpapi.TypeOverloaded, overload)
	p.RetryAfter(e.RetryAfter)
	return p
}

// Shed returns a handler that refuses limited requests with 503 while l is full, and
// passes all others to next. A refusal costs as little as possible: it precedes
// authentication, does not read the body, and is encoded in advance. The connection stays
// open: net/http discards a body of up to 256 KiB.
//
// Clients that send the next request as soon as one is refused could occupy all
// processors with refusals. So refusals are delayed while requests with places wait for
// a processor, except on connections that keep to Retry-After.
func (l *Limiter) Shed(next http.Handler, limited func(*http.Request) bool) http.Handler {
	problem := (&OverloadedError{RetryAfter: retryAfter}).Problem()
	body, _ := json.Marshal(problem.ErrorModel) // texts and numbers
	header := problem.Header()
	header.Set("Content-Type", httpapi.ProblemContentType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !limited(r) || l.Full() == nil {
			next.ServeHTTP(w, r)
			return
		}
		if d := l.delay(r.RemoteAddr, time.Now()); d >= minRefusalDelay {
			time.Sleep(d)
		}
		h := w.Header()
		for k, v := range header {
			h[k] = v // shared: nothing changes it after the refusal
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write(body) // a caller that closed the request misses nothing
	})
}

// delay returns how long a refusal is delayed on the connection from an address with a port.
func (l *Limiter) delay(connection string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.mu.refusals
	if r.lag > max(maxLag, time.Duration(lagOfLatency*float64(l.mu.limit.base))) {
		r.pace = min(r.pace+paceStep, maxPace)
	} else {
		r.pace = max(r.pace-paceStep, 0)
	}
	if r.next.Before(now) {
		r.next = now
	}
	d := r.next.Sub(now)
	if d >= minRefusalDelay && r.keeps(connection, now) {
		return 0
	}
	if d < maxRefusalDelay {
		r.next = r.next.Add(r.pace)
	}
	return d
}

// recordLag records how long a request with places waited for a processor.
func (l *Limiter) recordLag(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lag := &l.mu.refusals.lag
	*lag += time.Duration(lagShare * float64(d-*lag))
}

// patience contains the connections that were refused of late. Its zero value is empty. A
// connection is forgotten one to two periods of retryAfter after its last refusal.
type patience struct {
	began             time.Time // when current became the map of refusals
	current, previous map[string]time.Time
}

// keeps reports whether a connection that is refused has kept to Retry-After: it was not refused
// within retryAfter before. It returns true for at most maxPatient connections per period, so that
// clients that open a connection for each request are delayed too.
func (p *patience) keeps(connection string, now time.Time) bool {
	switch age := now.Sub(p.began); {
	case age >= 2*retryAfter:
		p.began, p.current, p.previous = now, make(map[string]time.Time), nil
	case age >= retryAfter:
		p.began, p.current, p.previous = now, make(map[string]time.Time), p.current
	}
	last, known := p.current[connection]
	if !known {
		if last, known = p.previous[connection]; len(p.current) >= maxPatient {
			return false
		}
	}
	p.current[connection] = now
	return !known || now.Sub(last) >= retryAfter
}
