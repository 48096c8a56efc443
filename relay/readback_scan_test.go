package relay

import (
	"encoding/binary"
	"testing"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// batchOf encodes events as a broker sends them, uncompressed.
func batchOf(offset int64, events ...outbox.Event) []byte {
	var records []byte
	for i, e := range events {
		r := kmsg.NewRecord()
		r.OffsetDelta = int32(i)
		r.Key, r.Value = e.Key(), e.Payload
		for _, h := range outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "test") {
			r.Headers = append(r.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
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
	all := events(4, 5, "OrderCreated")
	data := append(batchOf(100, all[:10]...), batchOf(110, all[10:]...)...)
	for _, size := range []int{0, 1, 60, len(data) / 2, len(data) - 1, len(data)} {
		n, want := 0, int64(7)
		if size >= len(batchOf(100, all[:10]...)) {
			want = 110
		}
		if size == len(data) {
			want = 120
		}
		next, err := newBatchScanner("test").scan(data[:size], 7, func(e topicEvent) {
			if e.id != all[n].ID || !e.ours {
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
	data := batchOf(0, events(100, 1, "OrderCreated")...)
	s := newBatchScanner("test")
	if n := testing.AllocsPerRun(10, func() {
		if _, err := s.scan(data, 0, func(topicEvent) {}); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Errorf("%v allocations for 100 records", n)
	}
}

func FuzzBatchScanner(f *testing.F) {
	data := batchOf(3, events(3, 2, "OrderCreated")...)
	f.Add(data)
	for codec := byte(1); codec <= 4; codec++ {
		c := append([]byte(nil), data...)
		c[batchAttributesAt+1] = codec
		f.Add(c)
	}
	f.Add(data[:len(data)-3])
	f.Fuzz(func(t *testing.T, data []byte) {
		n := 0
		next, err := newBatchScanner("test").scan(data, 0, func(topicEvent) { n++ })
		if next < 0 {
			t.Errorf("scan() = %d, %v", next, err)
		}
		// The least that an event takes is its three headers.
		if most := len(data); err == nil && n > most && !compressed(data) {
			t.Errorf("%d events in %d bytes", n, most)
		}
	})
}

func compressed(data []byte) bool {
	return len(data) > batchAttributesAt+1 && data[batchAttributesAt+1]&batchCodec != 0
}

func TestParseID(t *testing.T) {
	t.Parallel()
	id := event(1, 1, "x").ID
	for text, ok := range map[string]bool{
		id.String(): true, "0123ABCD-0123-4567-89ab-0123456789aB": true,
		"": false, "0123abcd-0123-4567-89ab-0123456789a": false, "0123abcd-0123-4567-89ab-0123456789ag": false,
		"0123abcd001230456708900b-0123456789a": false, "0123abcd-0123-4567-89ab-0123456789a\x80": false,
	} {
		u, got := parseID([]byte(text))
		if got != ok {
			t.Errorf("parseID(%q) = %t", text, got)
		}
		if want, err := gocql.ParseUUID(text); ok && (err != nil || u != want) {
			t.Errorf("parseID(%q) = %s", text, u)
		}
	}
}

func BenchmarkBatchScanner(b *testing.B) {
	data := batchOf(0, events(1000, 1, "OrderCreated")...)
	s := newBatchScanner("test")
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := s.scan(data, 0, func(topicEvent) {}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/record")
}
