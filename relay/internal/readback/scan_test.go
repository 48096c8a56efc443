package readback

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// encodeBatch encodes events as a broker sends them, uncompressed.
func encodeBatch(offset int64, events ...outbox.Event) []byte {
	return batchWith(offset, nil, events...)
}

// batchWith is encodeBatch with further headers of each record.
func batchWith(offset int64, more []kmsg.Header, events ...outbox.Event) []byte {
	var records []byte
	for i, e := range events {
		r := kmsg.NewRecord()
		r.OffsetDelta = int32(i)
		r.Key, r.Value = e.Key(), e.Payload
		for _, h := range outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "test") {
			r.Headers = append(r.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
		r.Headers = append(r.Headers, more...)
		body := r.AppendTo(nil)[1:] // without the length, which is 0 and one byte
		records = append(binary.AppendVarint(records, int64(len(body))), body...)
	}
	b := kmsg.NewRecordBatch()
	b.FirstOffset, b.Magic, b.NumRecords, b.LastOffsetDelta = offset, 2, int32(len(events)), int32(len(events)-1)
	b.Length = int32(batchHeaderSize - batchLengthAt - 4 + len(records))
	b.Records = records
	return b.AppendTo(nil)
}

func TestBatchScanner_StopsAtABatchThatIsCutOff(t *testing.T) {
	t.Parallel()
	all := relaytest.Events(4, 5, "OrderCreated")
	data := append(encodeBatch(100, all[:10]...), encodeBatch(110, all[10:]...)...)
	for _, size := range []int{0, 1, 60, len(data) / 2, len(data) - 1, len(data)} {
		n, want := 0, int64(7)
		if size >= len(encodeBatch(100, all[:10]...)) {
			want = 110
		}
		if size == len(data) {
			want = 120
		}
		next, err := newBatchScanner("test").scan(data[:size], 7, func(e Event) {
			if e.ID != all[n].ID.UUID() || !e.Ours {
				t.Errorf("event %d is %+v", n, e)
			}
			n++
		})
		if next != want || err != nil {
			t.Errorf("scan(%d of %d bytes) = %d, %v, want %d", size, len(data), next, err, want)
		}
	}
}

func TestBatchScanner_DoesNotAllocate(t *testing.T) {
	data := encodeBatch(0, relaytest.Events(100, 1, "OrderCreated")...)
	s := newBatchScanner("test")
	if n := testing.AllocsPerRun(10, func() {
		if _, err := s.scan(data, 0, func(Event) {}); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Errorf("%v allocations for 100 records", n)
	}
}

func FuzzBatchScanner(f *testing.F) {
	data := encodeBatch(3, relaytest.Events(3, 2, "OrderCreated")...)
	f.Add(data)
	for codec := byte(1); codec <= 4; codec++ {
		c := append([]byte(nil), data...)
		c[batchAttributesAt+1] = codec
		f.Add(c)
	}
	f.Add(data[:len(data)-3])
	f.Fuzz(func(t *testing.T, data []byte) {
		n := 0
		next, err := newBatchScanner("test").scan(data, 0, func(Event) { n++ })
		if next < 0 {
			t.Errorf("scan() = %d, %v", next, err)
		}
		// The least that an event takes is its three headers.
		if most := len(data); err == nil && n > most && !isCompressed(data) {
			t.Errorf("%d events in %d bytes", n, most)
		}
	})
}

func isCompressed(data []byte) bool {
	return len(data) > batchAttributesAt+1 && data[batchAttributesAt+1]&batchCodec != 0
}

// An id that is no UUID, and no number, are read back too.
func TestBatchScanner_ReadsTextIDs(t *testing.T) {
	t.Parallel()
	e := relaytest.Event(1, 0, "OrderCreated")
	e.ID, e.AggregateID = outbox.IDFromText("event-1"), outbox.IDFromText("42")
	var got []Event
	if _, err := newBatchScanner("test").scan(encodeBatch(0, e), 0, func(e Event) { got = append(got, e) }); err != nil {
		t.Fatal(err)
	}
	if want := (Event{ID: rows.IDOf("event-1"), Aggregate: rows.IDOf("42"), Ours: true}); len(got) != 1 || got[0] != want {
		t.Errorf("scan() = %+v, want %+v", got, want)
	}
	found := dedup.NewFound()
	got[0].addTo(&found, 0)
	if found.Size() != 1 {
		t.Errorf("%d events, want 1", found.Size())
	}
}

func BenchmarkBatchScanner(b *testing.B) {
	data := encodeBatch(0, relaytest.Events(1000, 1, "OrderCreated")...)
	s := newBatchScanner("test")
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := s.scan(data, 0, func(Event) {}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/record")
}

// The time of a record is the broker's where the topic has LogAppendTime, whatever the producer
// wrote, so a clock of the broker that is behind is measured there too.
func TestBatchScanner_MeasuresTheClockThatDatesRecords(t *testing.T) {
	t.Parallel()
	created := time.Now().UTC().Truncate(time.Millisecond)
	e := relaytest.Event(1, 1, "OrderCreated")
	e.CreatedAt = created
	for _, tt := range []struct {
		name             string
		append           bool
		producer, broker time.Duration // of the record's times to the creation of the event
		behind           time.Duration
	}{
		{"CreateTime, right", false, time.Millisecond, -90 * time.Second, 0},
		{"CreateTime, behind", false, -90 * time.Second, time.Millisecond, 90 * time.Second},
		{"LogAppendTime, right", true, -90 * time.Second, time.Millisecond, 0},
		{"LogAppendTime, behind", true, time.Millisecond, -90 * time.Second, 90 * time.Second},
		{"LogAppendTime, ahead", true, time.Millisecond, time.Hour, 0},
	} {
		data := encodeBatch(0, e)
		if tt.append {
			data[batchAttributesAt+1] |= batchAppend
		}
		binary.BigEndian.PutUint64(data[batchFirstTimeAt:], uint64(created.Add(tt.producer).UnixMilli()))
		binary.BigEndian.PutUint64(data[batchLastTimeAt:], uint64(created.Add(tt.broker).UnixMilli()))
		s := newBatchScanner("test")
		at := int64(0)
		if _, err := s.scan(data, 0, func(e Event) { at = e.at }); err != nil {
			t.Fatal(err)
		}
		want := tt.producer
		if tt.append {
			want = tt.broker
		}
		if got := time.UnixMilli(at).Sub(created); got != want || s.clock.behind() != tt.behind {
			t.Errorf("%s: the record is of %s after its event, and the clock %s behind, want %s and %s", tt.name, got, s.clock.behind(), want, tt.behind)
		}
	}
}
