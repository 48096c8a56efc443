package topics

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/internal/topicreader"
)

// maxPartitions bounds the partitions of a request, so that cursors have at most 1,000
// characters: an address is no place for more.
const maxPartitions = 64

// maxPayload bounds the payload of a record in a page; larger ones are cut.
const maxPayload = 64 << 10

type recordsInput struct {
	Topic     string    `path:"topic" minLength:"1" maxLength:"249"`
	Limit     int       `query:"limit" minimum:"1" maximum:"200" default:"50"`
	Partition int64     `query:"partition" minimum:"-1" maximum:"2147483647" default:"-1" doc:"Only this partition; -1 reads all"`
	At        time.Time `query:"at" doc:"Begin with the records of this time and continue with older ones. A cursor replaces it"`
	httpapi.Page
	After string `query:"after" maxLength:"1000" doc:"after of an earlier page: the records that have arrived since"`
	Text  bool   `query:"text" doc:"Return JSON payloads unchanged in data_text, for clients whose parser changes numbers"`
}

// TopicRecord is a record with its event.
type TopicRecord struct {
	kafkarecord.Event
	Bytes     int  `json:"data_bytes" doc:"Size of the payload"`
	Truncated bool `json:"data_truncated,omitempty" doc:"Only the first 64 KiB of the payload are returned"`
}

// RecordsBody is the records of a page with its cursors.
type RecordsBody struct {
	Topic   string        `json:"topic"`
	Records []TopicRecord `json:"records" nullable:"false" doc:"Newest first"`
	Next    string        `json:"next,omitempty" doc:"Cursor of the next page; absent if there are no older records"`
	After   string        `json:"after" doc:"Cursor for after"`
	Skipped int64         `json:"skipped,omitempty" doc:"With after: the number of new offsets that are not in the page, because there are more than limit"`
}

type recordsOutput struct{ Body RecordsBody }

func (b *Browser) records(ctx context.Context, in *recordsInput) (*recordsOutput, error) {
	if len(b.filterReadable(ctx, []string{in.Topic})) == 0 {
		return nil, notFound(in.Topic)
	}
	if in.Cursor != "" && in.After != "" {
		return nil, invalid("query.after", "cannot be combined with cursor")
	}
	before, err := parsePosition("query.cursor", in.Cursor)
	if err != nil {
		return nil, err
	}
	after, err := parsePosition("query.after", in.After)
	if err != nil {
		return nil, err
	}
	out := new(recordsOutput)
	err = b.reading(ctx, func(ctx context.Context, client *kgo.Client) error {
		spans, err := computeSpans(ctx, client, in, before, after)
		if err != nil {
			return err
		}
		out.Body, err = page(ctx, client, in, spans)
		out.Body.Next = in.Next(out.Body.Next)
		ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
		defer cancel()
		for i := range out.Body.Records {
			b.decode(ctx, &out.Body.Records[i], in.Text)
		}
		return err
	})
	if err != nil {
		return nil, b.toProblem(ctx, err)
	}
	return out, nil
}

// page reads a page of the spans.
func page(ctx context.Context, client *kgo.Client, in *recordsInput, spans []*span) (RecordsBody, error) {
	out := RecordsBody{Topic: in.Topic, Records: []TopicRecord{}}
	ends, older := position{}, position{}
	for _, s := range spans {
		ends[s.partition] = max(s.low, s.floor)
	}
	out.After = ends.String()
	r := &reader{client: client, topic: in.Topic, spans: spans, limit: in.Limit}
	records, err := r.page(ctx)
	if err != nil {
		return out, err
	}
	for _, x := range records {
		out.Records = append(out.Records, newTopicRecord(x, in.Text))
	}
	var left int64
	for _, s := range spans {
		older[s.partition] = s.next()
		left += max(0, s.next()-s.floor)
	}
	switch {
	case in.After != "":
		out.Skipped = left
	case left > 0:
		out.Next = older.String()
	}
	return out, nil
}

// computeSpans returns the part of each partition that a request reads.
func computeSpans(ctx context.Context, client *kgo.Client, in *recordsInput, before, after position) ([]*span, error) {
	all, err := topicreader.List(ctx, client, time.Time{}, in.Topic)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, notFound(in.Topic)
	}
	if !in.At.IsZero() && before == nil && after == nil {
		later, err := topicreader.List(ctx, client, in.At.Add(time.Millisecond), in.Topic)
		if err != nil {
			return nil, err
		}
		before = position{}
		for partition, s := range later[in.Topic] {
			before[partition] = s.From
		}
	}
	var out []*span
	for partition, x := range all[in.Topic] {
		if in.Partition >= 0 && int64(partition) != in.Partition {
			continue
		}
		s := &span{partition: partition, floor: x.From, low: x.End}
		if before != nil { // a partition without an offset is newer than the cursor
			s.low = min(x.End, before[partition])
		}
		if from := after[partition]; from <= x.End { // beyond the end, the topic was created again
			s.floor = max(s.floor, from)
		}
		out = append(out, s)
	}
	switch {
	case len(out) == 0:
		return nil, invalid("query.partition", fmt.Sprintf("the topic has partitions 0 to %d", len(all[in.Topic])-1))
	case len(out) > maxPartitions:
		return nil, invalid("query.partition", fmt.Sprintf("required: the topic has %d partitions, and a page has the records of at most %d", len(all[in.Topic]), maxPartitions))
	}
	return out, nil
}

// newTopicRecord decodes a record. A payload that is cut is no JSON any more.
func newTopicRecord(r *kgo.Record, text bool) TopicRecord {
	out := TopicRecord{Bytes: len(r.Value)}
	isJSON := jsonform.Valid
	if len(r.Value) > maxPayload {
		cut := *r
		cut.Value = cutTo(r.Value, maxPayload)
		r, out.Truncated = &cut, true
	}
	if text || out.Truncated {
		isJSON = func([]byte) bool { return false }
	}
	out.Event = kafkarecord.DecodeWith(r, isJSON)
	return out
}

// schemaTimeout bounds the wait of a page for schemas.
const schemaTimeout = 2 * time.Second

// decode decodes a payload by its schema, if that can be read and the result is not too large.
func (b *Browser) decode(ctx context.Context, r *TopicRecord, text bool) {
	if b.cfg.Schemas == nil || r.Truncated {
		return
	}
	e := r.Event
	if err := b.cfg.Schemas.Decode(ctx, &e); err != nil || e.Data == nil || len(e.Data) > maxPayload {
		return
	}
	if r.Event = e; text && e.Base64 != nil {
		s := string(e.Data)
		r.Data, r.Text = nil, &s
	}
}

// cutTo returns the first n bytes of b, without the beginning of a character that would be
// cut.
func cutTo(b []byte, n int) []byte {
	for i := n; i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			return b[:i]
		}
	}
	return b[:n]
}
