package schedule

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

const (
	// aimedLag is the lag of the relay's tail reader below which the rate of releases grows, and above
	// which it falls.
	aimedLag = 20 * time.Millisecond
	// firstRate is the rate per second of the first releases after paceIdle without any, and of all
	// releases while the lag is unknown: what a relay takes beside its other events on two cores.
	firstRate = 5000
	// leastRate is the least rate, beside a relay that lags for as long as it likes.
	leastRate = 1000
	// paceIdle is the time without a release after which the rate begins at firstRate again: the
	// relay may take less now than before.
	paceIdle = time.Second
	// paceUpdated is the interval at which the rate is computed.
	paceUpdated = 10 * time.Millisecond
	// paceGrowth is how long the rate takes to grow by a factor of e without a lag, and to fall by it
	// at twice the aimed one.
	paceGrowth = 300 * time.Millisecond
	// paceDamping is the power of e by which the rate falls as the lag grows by the aimed one: a lag
	// that grows shows that more is released than taken, before there is much of it.
	paceDamping = 0.5
	// paceUsed is the part of the rate from which it is used, so that it grows.
	paceUsed = 0.8
)

// releaseState contains the values on which the rate of releases depends.
type releaseState struct {
	rate        float64       // per second, until now
	past        time.Duration // since it was computed
	released    int           // messages in that time
	before, lag time.Duration // of the tail reader of the relay, which publishes other events too: then and now
	known       bool          // the lag is known
	most        float64       // the limit of the rate
}

// nextRate returns the number of releases per second from now on, above 0. The rate grows while the tail
// reader's lag is below the aimed one and the rate is used, and falls while the lag is above it, or
// grows. So the lag stays near the aimed one while there is more to release than database, relay and
// broker can take beside the other events.
func nextRate(s releaseState) float64 {
	next := s.rate
	if s.past > paceIdle {
		next = min(next, firstRate)
	}
	if !s.known {
		return min(firstRate, s.most)
	}
	inAimed := func(d time.Duration) float64 { return d.Seconds() / aimedLag.Seconds() }
	power := max(-1, 1-inAimed(s.lag))*min(1, s.past.Seconds()/paceGrowth.Seconds()) - paceDamping*max(-1, min(1, inAimed(s.lag-s.before)))
	if s.lag > aimedLag {
		power = min(power, 0) // a lag that shrinks is still one
	}
	most := s.most
	if float64(s.released) < paceUsed*s.rate*s.past.Seconds() {
		most = min(s.most, max(next, firstRate)) // nothing shows that more can be taken
	}
	return min(max(next*math.Exp(power), leastRate), most)
}

// pace limits releases by nextRate. It is not safe for concurrent use.
type pace struct {
	lag      func() (time.Duration, bool)
	most     float64
	limiter  *rate.Limiter
	updated  time.Time
	released int           // since then
	before   time.Duration // the lag at that time
}

func newPace(most int, lag func() (time.Duration, bool)) *pace {
	first := nextRate(releaseState{rate: firstRate, most: float64(most)})
	return &pace{lag: lag, most: float64(most), limiter: rate.NewLimiter(rate.Limit(first), max(1, min(shards*releaseMost, most/10)))}
}

// together returns how many messages may be released together, which wait for each other: the messages of
// 20 ms, and of 50 ms if they share a transaction.
func (p *pace) together() int {
	rate := int(p.limiter.Limit())
	return max(1, min(p.limiter.Burst(), max(rate/50, min(rate/20, releaseMost))))
}

// update computes the rate before the release of n messages.
func (p *pace) update(n int, now time.Time) {
	if past := now.Sub(p.updated); past >= paceUpdated {
		lag, known := p.lag()
		p.limiter.SetLimit(rate.Limit(nextRate(releaseState{float64(p.limiter.Limit()), past, p.released, p.before, lag, known, p.most})))
		p.updated, p.released, p.before = now, 0, lag
	}
	p.released += n
}
