package publish

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/epochs"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
)

// Headers that describe how an event was published. All records share their values,
// which must not be changed.
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

// tableHeader names the outbox table of a publisher in its records.
func tableHeader(name string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: outbox.HeaderTable, Value: []byte(name)}
}

// epochHeaders are the epochs of a table and their headers.
type epochHeaders struct {
	epochs  epochs.Epochs
	headers map[int64]kgo.RecordHeader
}

func newEpochHeaders(all epochs.Epochs) epochHeaders {
	e := epochHeaders{all, make(map[int64]kgo.RecordHeader, len(all))}
	for _, n := range all {
		e.headers[n] = kgo.RecordHeader{Key: outbox.HeaderEpoch, Value: strconv.AppendInt(nil, n, 10)}
	}
	return e
}

// add adds the epoch of an item to its headers.
func (e *epochHeaders) add(headers []kgo.RecordHeader, it *item) []kgo.RecordHeader {
	if len(e.epochs) == 0 {
		return headers
	}
	epoch := e.epochs.Of(cmp.Or(it.written, it.event.CreatedAt.UnixMicro()))
	if epoch == 0 {
		return headers
	}
	return append(headers, e.headers[epoch])
}

// slot is the storage of a record while the producer has it. Its memory is used again for another
// one, so that a record needs no allocation.
type slot struct {
	producer.Slot
	headers []kgo.RecordHeader
	values  []byte // of the headers
}

// maxSlotValues is the greatest size of the values of a slot that is used again.
const maxSlotValues = 4096

// fill sets the record of an item to be sent, after the attempt is counted.
//
// Its last headers describe the publication. Every event has the header of its reader.
// The others are present only where they differ from a first attempt with a closed
// breaker.
func (s *slot) fill(it *item, cfg *Config, breaker BreakerState) {
	headers, values := outbox.AppendHeadersTo(s.headers[:0], s.values[:0], &it.event, cfg.Source)
	for _, key := range cfg.IDHeaders {
		headers = append(headers, kgo.RecordHeader{Key: key, Value: headers[0].Value}) // that of ce_id
	}
	if !it.original.IsZero() {
		headers = append(headers, kgo.RecordHeader{Key: outbox.HeaderOriginalID, Value: []byte(it.original.String())})
	}
	if int(it.by) < len(capturedHeaders) {
		headers = append(headers, capturedHeaders[it.by])
	}
	if it.scanned {
		headers = append(headers, backfilled)
	}
	if n := int(it.earlier) + it.attempts; n > 1 {
		headers = append(headers, kgo.RecordHeader{Key: outbox.HeaderAttempts, Value: strconv.AppendInt(nil, int64(n), 10)})
	}
	if breaker != BreakerClosed {
		headers = append(headers, breakerHeaders[breaker])
	}
	s.headers, s.values = headers, values
	s.Record = kgo.Record{Topic: it.topic, Key: it.recordKey(), Value: it.event.Payload, Headers: headers}
}

// capture returns how the item was found, for its span.
func (it *item) capture() trace.Capture {
	c := trace.Capture{At: it.captured}
	if int(it.by) < len(FoundBy) {
		c.By = FoundBy[it.by]
	}
	return c
}

// parseSource returns the source with the given name in FoundBy.
func parseSource(name string) Source {
	if i := slices.Index(FoundBy[:], name); i >= 0 {
		return Source(i)
	}
	return byUnknown
}
