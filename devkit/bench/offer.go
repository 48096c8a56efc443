package bench

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// Answer is what a call came to.
type Answer uint8

// Answers.
const (
	Served      Answer = iota
	Refused            // 429: there was too much to do
	Unavailable        // 503
	Failed             // anything else
	unsent             // given up by the caller before it was sent
)

// Offer makes calls to something, whatever its answers take.
type Offer struct {
	// Rate is in calls per second. Zero is as fast as Workers get answers: each
	// makes its next call when it has the answer to the last.
	Rate float64
	// Duration is how long it is measured, after a WarmUp.
	Duration, WarmUp time.Duration
	// Workers bounds the calls under way. With a Rate, a call that finds no worker
	// free is late, and its time counts from when it was to be made.
	Workers int
	// Patience is how late a call may be before its caller has gone away unserved.
	Patience time.Duration
	// Do makes call i, of worker w. items is how many things were done by it.
	Do func(ctx context.Context, w int, i int64) (a Answer, items int)
}

// Offered is what came of an Offer, in the time that was measured.
type Offered struct {
	// Offered is how many calls per second were to be made.
	Offered float64 `json:"offered_per_second"`
	// Served are the things done, of all whose answers came in that time.
	Served Rate `json:"served"`
	// Refused, Unavailable, Failed and Unsent are shares of the calls.
	Refused     float64 `json:"refused_share"`
	Unavailable float64 `json:"unavailable_share"`
	Failed      float64 `json:"failed_share"`
	Unsent      float64 `json:"unsent_share"`
	// Intended is the time of calls that were served from when they were to be made,
	// Sent from when they were; Refusal is that of the refused, from when they were made.
	Intended Latency `json:"intended_ms"`
	Sent     Latency `json:"sent_ms"`
	Refusal  Latency `json:"refusal_ms"`
	// Done is how many things were done in all, warm-up and aftermath included.
	Done int64 `json:"done"`
	// Process, Database and Caller are the processor time that one thing done took
	// there, in microseconds. It says more than rates where others use the machine too.
	Process  float64 `json:"process_cpu_us"`
	Database float64 `json:"database_cpu_us"`
	Caller   float64 `json:"caller_cpu_us"`
	// PeakMB is the most memory that the process had, in 10^6 bytes.
	PeakMB float64 `json:"peak_mb"`
	// Others is how many processors the rest of the machine kept busy.
	Others float64 `json:"others_cores"`
}

// call is one that was made; times are since the offer began.
type call struct {
	intended, sent, ended time.Duration
	answer                Answer
	items                 int32
}

// Run makes the calls and returns when all are answered.
func (o *Offer) Run(ctx context.Context) Offered {
	began := time.Now()
	end := o.WarmUp + o.Duration
	calls := make([][]call, o.Workers)
	var next atomic.Int64
	var wg sync.WaitGroup
	for w := range o.Workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				c := call{intended: time.Since(began)}
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

// sum counts the calls that were to be made after the warm-up, and what was
// served until the end, even of those before it.
func (o *Offer) sum(calls []call) Offered {
	end := o.WarmUp + o.Duration
	intended, sent, refusal := newHistogram(), newHistogram(), newHistogram()
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
			record(refusal, c.ended-c.sent)
		}
	}
	share := func(a Answer) float64 { return float64(of[a]) / float64(max(all, 1)) }
	return Offered{
		Offered: RateOf(all, o.Duration).PerSecond, Served: RateOf(served, o.Duration), Done: done,
		Refused: share(Refused), Unavailable: share(Unavailable), Failed: share(Failed), Unsent: share(unsent),
		Intended: someLatency(intended), Sent: someLatency(sent), Refusal: someLatency(refusal),
	}
}

// someLatency is zero where nothing was measured.
func someLatency(h *hdrhistogram.Histogram) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	return latencyOf(h)
}

// CPU is the processor time that all three took for one thing done, in microseconds.
func (o *Offered) CPU() float64 { return o.Process + o.Database + o.Caller }

// Spent notes what was used in the meantime.
func (o *Offered) Spent(process, database, caller Usage) {
	each := func(u Usage) float64 { return float64(u.CPU.Microseconds()) / float64(max(o.Done, 1)) }
	o.Process, o.Database, o.Caller, o.PeakMB = each(process), each(database), each(caller), float64(process.Peak)/1e6
}
