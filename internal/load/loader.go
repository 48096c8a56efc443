package load

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"
)

// Loader posts a file of orders and cancellations to an order API. Lines of
// one invoice are sent in the file's order, others concurrently. Requests that the API
// could not serve yet are retried with the same Idempotency-Key.
type Loader struct {
	api     string // base URL, without a slash at the end
	client  *http.Client
	workers int
	rate    float64 // requests per second, 0 for no limit
	// Attempts is the maximum number of attempts per line.
	Attempts int
	// Run is the id of the load, a part of its Idempotency-Keys.
	Run uuid.UUID
	// problem is called with each line that was rejected or could not be read, from one
	// goroutine at a time.
	problem func(line int, err error)
	// stop ends the load.
	stop context.CancelCauseFunc

	total                        atomic.Int64 // lines read so far
	Created, Cancelled, rejected atomic.Int64
	retried                      atomic.Int64
	problemMu                    sync.Mutex
}

// LoadSummary contains the counts of a load.
type LoadSummary struct {
	Lines     int64   `json:"lines"`
	Created   int64   `json:"orders_created"`
	Cancelled int64   `json:"orders_cancelled"`
	Rejected  int64   `json:"rejected"`
	Retried   int64   `json:"retried"`
	Elapsed   float64 `json:"elapsed_s"`
}

// line is one line of the file.
type line struct {
	Op         string          `json:"op"`
	Order      json.RawMessage `json:"order"`
	Invoice    string          `json:"invoice"`
	CreditNote string          `json:"credit_note"`
	At         *time.Time      `json:"at"`
}

// cancellation is the body of a cancel request.
type cancellation struct {
	CreditNote  string     `json:"credit_note,omitempty"`
	CancelledAt *time.Time `json:"cancelled_at,omitempty"`
}

// job is a line with its number and, for a cancellation, the order it waits for.
type job struct {
	number int
	line   line
	order  *pendingOrder
}

// pendingOrder is an order that a later line may cancel.
type pendingOrder struct {
	done chan struct{} // closed once id is known, or empty after a failure
	id   string
}

// errNoOrder rejects a cancellation of an unknown order.
var errNoOrder = errors.New("cancels an invoice that no earlier line created")

// UnreachableError ends a load: the API answered none of the attempts for a line.
type UnreachableError struct{ Err error }

func (e *UnreachableError) Error() string { return "the API does not answer: " + e.Err.Error() }

// Unwrap returns the error of the last attempt.
func (e *UnreachableError) Unwrap() error { return e.Err }

const (
	maxLine         = 4 << 20
	DefaultAttempts = 30
)

// Load reads r to its end. It returns an error if it stopped before the end, such as an
// UnreachableError; errors of single lines are reported to problem.
func (l *Loader) Load(ctx context.Context, r io.Reader) error {
	ctx, l.stop = context.WithCancelCause(ctx)
	defer l.stop(nil)
	jobs := make(chan job)
	var wg sync.WaitGroup
	for range l.workers {
		wg.Go(func() {
			for j := range jobs {
				l.do(ctx, j)
			}
		})
	}
	err := l.read(ctx, r, jobs)
	close(jobs)
	wg.Wait()
	if err == nil || errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	return err
}

func (l *Loader) read(ctx context.Context, r io.Reader, jobs chan<- job) error {
	limit := rate.NewLimiter(rate.Inf, 1)
	if l.rate > 0 {
		limit = rate.NewLimiter(rate.Limit(l.rate), max(1, int(l.rate/100)))
	}
	orders := make(map[string]*pendingOrder)
	in := bufio.NewReaderSize(r, 64<<10)
	for n := 1; ; n++ {
		text, tooLong, err := readLine(in, maxLine)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read line %d: %w", n, err)
		}
		if text = bytes.TrimSpace(text); len(text) == 0 && !tooLong {
			continue
		}
		l.total.Add(1)
		if tooLong {
			l.reject(n, fmt.Errorf("longer than %d bytes", maxLine))
			continue
		}
		j := job{number: n}
		if err := json.Unmarshal(text, &j.line); err != nil {
			l.reject(n, fmt.Errorf("not a JSON object: %w", err))
			continue
		}
		switch j.line.Op {
		case "create":
			var head struct {
				Invoice string `json:"invoice"`
			}
			if err := json.Unmarshal(j.line.Order, &head); err != nil {
				l.reject(n, fmt.Errorf("op create needs an order object: %w", err))
				continue
			}
			j.order = &pendingOrder{done: make(chan struct{})}
			if head.Invoice != "" {
				orders[head.Invoice] = j.order
			}
		case "cancel":
			o, ok := orders[j.line.Invoice]
			if !ok {
				l.reject(n, fmt.Errorf("invoice %q: %w", j.line.Invoice, errNoOrder))
				continue
			}
			j.order = o
		default:
			l.reject(n, fmt.Errorf("op %q: use create or cancel", j.line.Op))
			continue
		}
		if err := limit.Wait(ctx); err != nil {
			return err
		}
		select {
		case jobs <- j:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readLine reads a line without its end. It skips a line longer than limit. io.EOF is the end
// of the input.
func readLine(in *bufio.Reader, limit int) (text []byte, tooLong bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(text)+len(part) > limit {
			text, tooLong = nil, true
		}
		if !tooLong {
			text = append(text, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && (len(text) > 0 || tooLong):
			return text, tooLong, nil
		}
		return text, tooLong, err
	}
}

// do sends one line. A create always closes its order's done.
func (l *Loader) do(ctx context.Context, j job) {
	if j.line.Op == "create" {
		defer close(j.order.done)
		var created struct {
			ID string `json:"id"`
		}
		if err := l.post(ctx, "/v1/orders", j, j.line.Order, &created); err != nil {
			l.reject(j.number, err)
			return
		}
		j.order.id = created.ID
		l.Created.Add(1)
		return
	}
	select {
	case <-j.order.done:
	case <-ctx.Done():
		l.reject(j.number, ctx.Err())
		return
	}
	if j.order.id == "" {
		l.reject(j.number, fmt.Errorf("invoice %q: %w", j.line.Invoice, errNoOrder))
		return
	}
	body, err := json.Marshal(cancellation{j.line.CreditNote, j.line.At})
	if err == nil {
		err = l.post(ctx, "/v1/orders/"+j.order.id+"/cancel", j, body, nil)
	}
	if err != nil {
		l.reject(j.number, err)
		return
	}
	l.Cancelled.Add(1)
}

func (l *Loader) reject(n int, err error) {
	if errors.Is(err, context.Canceled) {
		return // the load is being stopped; the line is not the cause
	}
	l.rejected.Add(1)
	l.problemMu.Lock()
	defer l.problemMu.Unlock()
	l.problem(n, err)
}

// post sends a body until the API returns a final answer.
func (l *Loader) post(ctx context.Context, path string, j job, body []byte, into any) error {
	key := fmt.Sprintf("load-%s-%d", l.Run, j.number)
	for attempt := 1; ; attempt++ {
		wait, err := l.postOnce(ctx, path, key, body, into)
		if err == nil || wait == 0 {
			return err
		}
		if attempt >= l.Attempts {
			if unreachable, ok := errors.AsType[*UnreachableError](err); ok {
				l.stop(unreachable) // the next lines would fail alike
			}
			return err
		}
		l.retried.Add(1)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// postOnce sends a body. A wait above zero permits a retry after it.
func (l *Loader) postOnce(ctx context.Context, path, key string, body []byte, into any) (wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.api+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := l.client.Do(req)
	if err != nil {
		if ended := context.Cause(ctx); ended != nil {
			return 0, ended // which err repeats
		}
		return time.Second, &UnreachableError{err}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxLine))
	if err != nil {
		return time.Second, err
	}
	switch {
	case resp.StatusCode < 300:
		if into != nil {
			if err := json.Unmarshal(answer, into); err != nil {
				return 0, fmt.Errorf("answer %s: %w", resp.Status, err)
			}
		}
		return 0, nil
	case resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests:
		wait = time.Second
		if s, err := time.ParseDuration(resp.Header.Get("Retry-After") + "s"); err == nil && s > 0 && s < time.Minute {
			wait = s
		}
		return wait, newProblemError(resp.Status, answer)
	}
	return 0, newProblemError(resp.Status, answer)
}

// newProblemError returns the error of a problem+json body, with its detail and fields.
func newProblemError(status string, body []byte) error {
	var p struct {
		Detail string `json:"detail"`
		Errors []struct {
			Message  string `json:"message"`
			Location string `json:"location"`
		} `json:"errors"`
	}
	if json.Unmarshal(body, &p) != nil || p.Detail == "" {
		return fmt.Errorf("answer %s: %.200s", status, bytes.TrimSpace(body))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "answer %s: %s", status, p.Detail)
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "; %s: %s", e.Location, e.Message)
	}
	return errors.New(b.String())
}

// Summary returns the counts so far, with the given duration. It may be called while Load
// runs.
func (l *Loader) Summary(elapsed time.Duration) LoadSummary {
	return LoadSummary{
		Lines: l.total.Load(), Created: l.Created.Load(), Cancelled: l.Cancelled.Load(),
		Rejected: l.rejected.Load(), Retried: l.retried.Load(), Elapsed: elapsed.Seconds(),
	}
}

// Gunzip returns the content of r, decompressed if it is gzip.
func Gunzip(r io.Reader) (io.Reader, error) {
	br := bufio.NewReader(r)
	head, err := br.Peek(2)
	if err != nil || head[0] != 0x1f || head[1] != 0x8b {
		return br, nil // shorter than two bytes is not gzip either
	}
	return gzip.NewReader(br)
}
