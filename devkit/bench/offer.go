package bench

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// Answer is the result of a call.
type Answer uint8

// Answers.
const (
	Served      Answer = iota
	Refused            // because of overload
	Unavailable        // 503, the database is unavailable
	Failed             // anything else
	unsent             // given up by the caller before it was sent
)

// Offer makes calls at a rate that does not depend on their responses.
type Offer struct {
	// Rate is in calls per second. Zero means as fast as Workers get responses: each
	// makes its next call when the last has returned.
	Rate float64
	// Duration is the measured time, after a WarmUp.
	Duration, WarmUp time.Duration
	// Workers limits the calls in progress. With a Rate, a call that finds no worker
	// free is late, and its time counts from when it was to be made.
	Workers int
	// Patience is how late a call may be before it is dropped unsent.
	Patience time.Duration
	// Patient is how many of the workers wait for a second, the Retry-After of a refusal, before
	// their next call after one. The others ignore it.
	Patient int
	// Do makes call i, of worker w, and returns how many items were done by it.
	Do func(ctx context.Context, w int, i int64) (a Answer, items int)
}

// Offered is the result of an Offer, in the measured time.
type Offered struct {
	// Offered is how many calls per second were to be made.
	Offered float64 `json:"offered_per_second"`
	// Served counts the items of all calls that returned in that time.
	Served Rate `json:"served"`
	// Refused, Unavailable, Failed and Unsent are shares of the calls.
	Refused     float64 `json:"refused_share"`
	Unavailable float64 `json:"unavailable_share"`
	Failed      float64 `json:"failed_share"`
	Unsent      float64 `json:"unsent_share"`
	// Intended is the latency of served calls from when they were to be made, Sent from
	// when they were made; Refusal is that of refused calls, from when they were made, except
	// the calls of patient workers, whose latency PatientRefusal is.
	Intended Latency `json:"intended_ms"`
	Sent     Latency `json:"sent_ms"`
	Refusal  Latency `json:"refusal_ms"`

	PatientRefusal Latency `json:"patient_refusal_ms"`

	// Done is the total number of items done, warm-up and aftermath included.
	Done int64 `json:"done"`
	// Process, Database and Caller are the processor time that one item took there, in
	// microseconds. It is more reliable than rates where others use the machine too.
	Process  float64 `json:"process_cpu_us"`
	Database float64 `json:"database_cpu_us"`
	Caller   float64 `json:"caller_cpu_us"`
	// PeakMB is the peak memory of the process, in 10^6 bytes.
	PeakMB float64 `json:"peak_mb"`
	// Others is how many processors the rest of the machine kept busy.
	Others float64 `json:"others_cores"`
}

// call is one call; times are since the offer began.
type call struct {
	intended, sent, ended time.Duration
	answer                Answer
	patient               bool
	items                 int32
}

// retryAfter is how long a patient worker waits after a refusal.
const retryAfter = time.Second

// Run makes the calls and returns when all have returned.
func (o *Offer) Run(ctx context.Context) Offered {
	began := time.Now()
	end := o.WarmUp + o.Duration
	calls := make([][]call, o.Workers)
	var next atomic.Int64
	var wg sync.WaitGroup
	for w := range o.Workers {
		wg.Go(func() {
			patient, free := w < o.Patient, began
			for ctx.Err() == nil && sleepUntil(ctx, free) {
				i := next.Add(1) - 1
				c := call{intended: time.Since(began), patient: patient}
				if o.Rate > 0 {
					c.intended = time.Duration(float64(i) / o.Rate * float64(time.Second))
				}
				if c.intended >= end || !sleepUntil(ctx, began.Add(c.intended)) {
					return
				}
				c.sent = time.Since(began)
				if o.Patience > 0 && c.sent-c.intended > o.Patience {
					c.answer = unsent
				} else {
					var items int
					c.answer, items = o.Do(ctx, w, i)
					c.items = int32(items)
				}
				c.ended = time.Since(began)
				if patient && c.answer == Refused {
					free = began.Add(c.ended + retryAfter)
				}
				calls[w] = append(calls[w], c)
			}
		})
	}
	wg.Wait()
	return o.sum(slices.Concat(calls...))
}

func sleepUntil(ctx context.Context, t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return true
	}
	return retry.Wait(ctx, d) == nil
}

// sum counts the calls that were to be made after the warm-up, and everything served
// until the end, even of calls before it.
func (o *Offer) sum(calls []call) Offered {
	end := o.WarmUp + o.Duration
	intended, sent, refusal, patient := newHistogram(), newHistogram(), newHistogram(), newHistogram()
	var of [unsent + 1]int64
	var all, served, done int64
	for _, c := range calls {
		done += int64(c.items)
		if c.answer == Served && c.ended >= o.WarmUp && c.ended < end {
			served += int64(c.items)
		}
		if c.intended < o.WarmUp || c.intended >= end {
			continue
		}
		all++
		of[c.answer]++
		switch c.answer {
		case Served:
			record(intended, c.ended-c.intended)
			record(sent, c.ended-c.sent)
		case Refused, Unavailable:
			if c.patient {
				record(patient, c.ended-c.sent)
			} else {
				record(refusal, c.ended-c.sent)
			}
		}
	}
	share := func(a Answer) float64 { return float64(of[a]) / float64(max(all, 1)) }
	return Offered{
		Offered: NewRate(all, o.Duration).PerSecond, Served: NewRate(served, o.Duration), Done: done,
		Refused: share(Refused), Unavailable: share(Unavailable), Failed: share(Failed), Unsent: share(unsent),
		Intended: someLatency(intended), Sent: someLatency(sent), Refusal: someLatency(refusal), PatientRefusal: someLatency(patient),
	}
}

// someLatency is zero where nothing was measured.
func someLatency(h *histogram) Latency {
	if h.total == 0 {
		return Latency{}
	}
	return newLatency(h)
}

// CPU returns the processor time that all three took for one item, in microseconds.
func (o *Offered) CPU() float64 { return o.Process + o.Database + o.Caller }

// Spent records the resources used in the meantime.
func (o *Offered) Spent(process, database, caller Usage) {
	each := func(u Usage) float64 { return float64(u.CPU.Microseconds()) / float64(max(o.Done, 1)) }
	o.Process, o.Database, o.Caller, o.PeakMB = each(process), each(database), each(caller), float64(process.Peak)/1e6
}
