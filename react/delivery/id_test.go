package delivery

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
)

// Ids are unique within a source: two tables with sequential event ids have the
// same ids for different events. A UUID is unique, and an event that another
// relay publishes again is the same one.
func TestNewID_DependsOnTheSource(t *testing.T) {
	t.Parallel()
	event := func(source, id string) *kafkarecord.Event {
		r := &kgo.Record{Headers: []kgo.RecordHeader{{Key: outbox.HeaderID, Value: []byte(id)}}}
		if source != "" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: outbox.HeaderSource, Value: []byte(source)})
		}
		e := kafkarecord.Decode(r)
		return &e
	}
	const id = "01a1fdab-a873-7807-854b-50e5bdfcfb06"
	for _, c := range []struct {
		name string
		a, b *kafkarecord.Event
		same bool
	}{
		{"a number of two sources", event("/a", "1"), event("/b", "1"), false},
		{"a number of one source", event("/a", "1"), event("/a", "1"), true},
		{"two numbers of one source", event("/a", "1"), event("/a", "2"), false},
		{"a number without a source", event("", "1"), event("", "1"), true},
		{"a UUID of two sources", event("/a", id), event("/b", id), true},
	} {
		if same := NewID("rule", c.a) == NewID("rule", c.b); same != c.same {
			t.Errorf("%s: the same delivery = %v, want %v", c.name, same, c.same)
		}
	}
	if got, want := NewID("rule", event("/a", id)), outbox.NameID(namespace, "rule", "event", id); got != want {
		t.Errorf("NewID() of a UUID = %s, want %s as in earlier versions", got, want)
	}
}
