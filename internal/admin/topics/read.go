package topics

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/topicreader"
)

const (
	// maxRound, maxBytes and maxPage bound the bytes of a round of reads, of all rounds of a
	// request, and of the records that it returns. Each may be exceeded by one fetch.
	maxRound = 8 << 20
	maxBytes = 32 << 20
	maxPage  = 4 << 20
	// maxFetch bounds the bytes that are read ahead from a broker.
	maxFetch = 4 << 20
	// minWindow is the smallest number of offsets that is first read of a partition.
	minWindow = 8
)

// span is the part of a partition that a request reads, from its newest end on.
type span struct {
	partition int32
	// floor is the offset at which the span ends, and low the one above which it is read.
	floor, low int64
	// window is the number of offsets that the next read covers, and from where it begins.
	window, from int64
	// records are read and not in the page yet, oldest first; read are the records of a
	// window that is not complete.
	records, read []*kgo.Record
}

// dry reports whether the span has to be read further before its newest record is known.
func (s *span) dry() bool { return len(s.records) == 0 && s.low > s.floor }

// next returns the offset below which the next page continues.
func (s *span) next() int64 {
	if n := len(s.records); n > 0 {
		return s.records[n-1].Offset + 1
	}
	return s.low
}

// complete takes the records of the window, which is read to its end.
func (s *span) complete() { s.records, s.low, s.window = s.read, s.from, s.window*2 }

// reader reads a page.
type reader struct {
	client *kgo.Client
	topic  string
	spans  []*span
	limit  int

	bytes int // read so far
	size  int // of the records in the page
}

// page returns the newest records of the spans, at most limit, newest first. It returns
// fewer if the spans have fewer or the read is at a bound. It reads small windows from the
// ends of the partitions, and further ones of those whose records are all in the page.
func (r *reader) page(ctx context.Context) (out []*kgo.Record, err error) {
	for _, s := range r.spans {
		s.window = int64(max(minWindow, 2*r.limit/len(r.spans)))
	}
	for {
		for len(out) < r.limit && r.size < maxPage {
			s := r.newest()
			if s == nil {
				break
			}
			n := len(s.records) - 1
			out = append(out, s.records[n])
			r.size += min(maxPayload, len(s.records[n].Value)) + sizeWithout(s.records[n])
			s.records = s.records[:n]
		}
		dry := r.dry()
		if len(out) == r.limit || len(dry) == 0 || r.size >= maxPage || r.bytes >= maxBytes {
			break
		}
		if err := r.read(ctx, dry); err != nil {
			if len(out) > 0 && ctx.Err() != nil {
				break // the page is shorter
			}
			return nil, err
		}
	}
	if dry := r.dry(); len(out) == 0 && len(dry) > 0 && len(r.spans) > 1 && r.bytes >= maxBytes {
		return nil, invalid("query.partition", fmt.Sprintf("required: the newest records of %d partitions exceed the limit of %d MiB of a read", len(r.spans), maxBytes>>20))
	}
	return out, nil
}

// dry returns the spans that have to be read further.
func (r *reader) dry() (out []*span) {
	for _, s := range r.spans {
		if s.dry() {
			out = append(out, s)
		}
	}
	return out
}

// newest returns the span with the newest record that is not in the page; nil if there is
// none, or if it is not known.
func (r *reader) newest() (best *span) {
	for _, s := range r.spans {
		if s.dry() {
			return nil
		}
		if len(s.records) > 0 && (best == nil || later(s.records[len(s.records)-1], best.records[len(best.records)-1])) {
			best = s
		}
	}
	return best
}

// later reports whether a comes before b in a page.
func later(a, b *kgo.Record) bool {
	if !a.Timestamp.Equal(b.Timestamp) {
		return a.Timestamp.After(b.Timestamp)
	}
	return a.Partition > b.Partition
}

// read reads the window below each span. Beyond maxRound it stops: the windows that are not
// complete are discarded, and smaller next time.
func (r *reader) read(ctx context.Context, spans []*span) error {
	open, windows := make(map[int32]*span), make(topicreader.Spans)
	for _, s := range spans {
		s.from, s.read = max(s.floor, s.low-s.window), nil
		open[s.partition] = s
		windows.Add(r.topic, s.partition, topicreader.Span{From: s.from, End: s.low})
	}
	round := 0
	for b, err := range (&topicreader.Reader{Client: r.client, MaxBytes: maxFetch}).Read(ctx, windows) {
		if err != nil {
			return err
		}
		s := open[b.Partition]
		s.read = append(s.read, b.Records...)
		for _, x := range b.Records {
			round += len(x.Value) + sizeWithout(x)
		}
		if b.Next >= s.low {
			s.complete()
			delete(open, b.Partition)
		}
		if round >= maxRound {
			break
		}
	}
	r.bytes += round
	for _, s := range open {
		s.window, s.read = max(1, s.window/8), nil
	}
	return nil
}

// sizeWithout returns the size of a record without its payload.
func sizeWithout(r *kgo.Record) int {
	n := len(r.Key)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}
