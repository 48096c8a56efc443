package engine

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Payload, key and headers equal the record's: in the first delivery, in one that was stored, in
// one by the next owner, and in a replay of the dead letter.
func TestEngine_DeliversTheBytes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, MaxReceive: 3, Backoff: time.Second, Ordering: subscriptions.OrderingNone})
		p := w.start()
		records := []*kgo.Record{
			{Key: []byte("lines"), Value: []byte("{\r\n \"a\":\t1}\n")},
			{Key: []byte("empty"), Value: []byte{}},
			{Key: []byte("no value")},
			{Key: []byte("null"), Value: []byte("null")},
			{Key: []byte("\xff\xfe\x00"), Value: []byte("\xff\x00")},
			{Key: []byte{}, Value: []byte("empty key")},
			{Value: []byte("no key")},
			{Key: []byte("headers"), Value: []byte("1"), Headers: []kgo.RecordHeader{{Key: "b", Value: []byte("1")}, {Key: "a", Value: []byte("\xff")}, {Key: "b", Value: []byte{}}, {Key: "c"}}},
		}
		for _, r := range records {
			r.Topic = "a"
			w.publish(r)
		}
		check := func(step string) (got []subscriptions.Message) {
			t.Helper()
			for range records { // of several partitions
				got = append(got, p.receive(10, 10*time.Second)...)
				if len(got) == len(records) {
					break
				}
			}
			for _, r := range records {
				want, found := kafkarecord.Decode(r), false
				for i := range got {
					g := &got[i]
					if g.Partition != r.Partition || g.Offset != r.Offset {
						continue
					}
					found = true
					if !reflect.DeepEqual(g.Payload(), r.Value) || !bytes.Equal(g.RecordKey(), r.Key) || (g.RecordKey() == nil) != (r.Key == nil) || !reflect.DeepEqual(g.RecordHeaders, want.RecordHeaders) {
						t.Errorf("%s: payload %#v, key %#v, headers %+v of %+v", step, g.Payload(), g.RecordKey(), g.RecordHeaders, r)
					}
				}
				if !found {
					t.Errorf("%s: %q is not delivered", step, r.Key)
				}
			}
			return got
		}
		p.ok(subscriptions.ActionNack, check("first delivery")...)
		w.sleep(10 * time.Second)
		p.ok(subscriptions.ActionNack, check("stored")...)
		p.stop()
		p = w.start()
		p.ok(subscriptions.ActionReject, check("next owner")...)
		w.sleep(10 * time.Second)
		for _, l := range w.db.letters() {
			if l.Status != dlq.Suspended {
				t.Errorf("dead letter %s", l.Status)
			}
			w.replay(l.EventID)
		}
		p.ok(subscriptions.ActionAck, check("replay")...)
	})
}
