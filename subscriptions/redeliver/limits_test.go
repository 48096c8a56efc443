package redeliver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// Beyond the time of a preview it is incomplete; beyond the time or the records of a job, or with a
// slice that is wrong, the error names the field and the fix. Topics that cannot be read are
// another error.
func TestFind_Limits(t *testing.T) {
	t.Parallel()
	w := world.Start(t)
	broker := world.StartBroker(t, kfake.SeedTopics(1, "things"))
	client := world.Connect(t, broker)
	for range 3 {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "things", Key: []byte("a"), Value: []byte(`{"n":1}`)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	c := Config{Kafka: world.Kafka{kgo.SeedBrokers(broker.ListenAddrs()...)}.Client}
	var err error
	if c.Store, err = store.Open(w.Session, schema.DefaultKeyspace); err != nil {
		t.Fatal(err)
	}
	if c.DeadLetters, err = dlq.Open(w.Session, schema.DefaultKeyspace); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Store.Put(t.Context(), subscriptions.Subscription{Name: "mail", Topics: []string{"things"}}, "ada"); err != nil {
		t.Fatal(err)
	}
	all := jobs.Slice{Since: time.Unix(1, 0)}
	if _, p, err := find(t.Context(), c, "mail", all, options{time: 1, records: 3, stall: stall, partial: true}); err != nil || !p.Truncated || p.Problem != "" {
		t.Errorf("a preview after its time is %+v, %v", p, err)
	}
	if _, p, err := find(t.Context(), c, "mail", all, options{time: MaxTime, records: 3, stall: stall}); err != nil || p.Truncated || p.Records != 3 || p.Waiting != 3 || !strings.Contains(p.Problem, "3 messages are not settled") {
		t.Errorf("within the limits the plan is %+v, %v", p, err)
	}
	for name, tt := range map[string]struct {
		slice       jobs.Slice
		o           options
		field, want string
	}{
		"the time of a job":    {all, options{time: 1, records: 3, stall: stall}, "since", "name a later time, or a topic"},
		"the records of a job": {all, options{time: MaxTime, records: 2, stall: stall}, "since", "more than 2 records"},
		"no criterion":         {jobs.Slice{Topic: "things", Until: time.Unix(1, 0)}, options{}, "", "name a key"},
		"an empty time":        {jobs.Slice{Since: time.Unix(1, 0), Until: time.Unix(1, 0)}, options{}, "since", "is not before until"},
		"a time to come":       {jobs.Slice{Since: time.Now().Add(time.Hour)}, options{}, "since", "in the future"},
		"a filter":             {jobs.Slice{Filter: "data."}, options{}, "filter", "line 1"},
		"a filter that fails":  {jobs.Slice{Filter: "data.m > 1"}, options{time: MaxTime, records: 3, stall: stall}, "filter", "things/0 at offset 0"},
		"a topic":              {jobs.Slice{Key: "a", Topic: "others"}, options{}, "topic", "its topics are things"},
	} {
		_, _, err := find(t.Context(), c, "mail", tt.slice, tt.o)
		if slice, ok := errors.AsType[*jobs.SliceError](err); !ok || slice.Field != tt.field || !strings.Contains(slice.Problem, tt.want) {
			t.Errorf("%s: %v, want %s with %q", name, err, tt.field, tt.want)
		}
	}
	s := New(c)
	if err := s.Check(t.Context(), &jobs.Redelivery{Subscription: "sms", Slice: all}); !errors.Is(err, subscriptions.ErrNotFound) {
		t.Errorf("Check() of no subscription = %v", err)
	}
	if _, err := s.Redeliver(t.Context(), &jobs.Redelivery{Subscription: "sms", Slice: all}, dlq.Actor{}, nil); err == nil || !strings.HasPrefix(err.Error(), "subscription: ") {
		t.Errorf("Redeliver() to no subscription = %v", err)
	}
	if _, err := s.Redeliver(t.Context(), &jobs.Redelivery{Subscription: "mail", Slice: jobs.Slice{Key: "b"}}, dlq.Actor{}, nil); err == nil || !strings.Contains(err.Error(), `none of 3 records has the key "b"`) {
		t.Errorf("Redeliver() of no message = %v", err)
	}
	broken := errors.New("no brokers")
	s.conf.Kafka = func(...kgo.Opt) (*kgo.Client, error) { return nil, broken }
	if _, err := s.Preview(t.Context(), &jobs.Redelivery{Subscription: "mail", Slice: all}); !errors.Is(err, jobs.ErrTopics) || !errors.Is(err, broken) {
		t.Errorf("Preview() without topics = %v", err)
	}
}
