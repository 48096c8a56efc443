package publish

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// The headers that tell how an event came to its topic. All records share their
// values, which nobody may change.
var (
	backfilled     = kgo.RecordHeader{Key: outbox.HeaderBackfill, Value: []byte("1")}
	breakerHeaders = [...]kgo.RecordHeader{
		BreakerHalfOpen: {Key: outbox.HeaderBreaker, Value: []byte(BreakerHalfOpen.String())},
		BreakerOpen:     {Key: outbox.HeaderBreaker, Value: []byte(BreakerOpen.String())},
	}
	capturedHeaders = func() (headers [len(FoundBy)]kgo.RecordHeader) {
		for by, name := range FoundBy {
			headers[by] = kgo.RecordHeader{Key: outbox.HeaderCaptured, Value: []byte(name)}
		}
		return headers
	}()
)

// record is the record of an item that is to be sent. Called locked, when the
// attempt is counted.
//
// Its last headers tell of the way here: of every event who found it, and the rest
// only where it differs from a first attempt with the breaker closed, so an event
// costs no allocation more than its own headers do.
func (p *Publisher) record(it *item) *kgo.Record {
	headers := outbox.AppendHeaders[kgo.RecordHeader](nil, &it.event, p.cfg.Source)
	if int(it.by) < len(capturedHeaders) {
		headers = append(headers, capturedHeaders[it.by])
	}
	if it.scanned {
		headers = append(headers, backfilled)
	}
	if n := int(it.buried) + it.attempts; n > 1 {
		headers = append(headers, kgo.RecordHeader{Key: outbox.HeaderAttempts, Value: strconv.AppendInt(nil, int64(n), 10)})
	}
	if s := p.breaker.status.State; s != BreakerClosed {
		headers = append(headers, breakerHeaders[s])
	}
	return &kgo.Record{Topic: it.topic, Key: it.event.Key(), Value: it.event.Payload, Headers: headers}
}

// sourceOf is who found an event, by its name in foundBy.
func sourceOf(name string) source {
	if i := slices.Index(FoundBy[:], name); i >= 0 {
		return source(i)
	}
	return byUnknown
}
