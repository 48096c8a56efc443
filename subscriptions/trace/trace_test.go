package trace

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/subfake"
)

// broken fails for one subscription, and hangs for another.
type broken struct{ *subfake.Service }

func (b broken) Progress(ctx context.Context, name string, at subscriptions.Place) (subscriptions.Progress, error) {
	switch name {
	case "fails":
		return subscriptions.Progress{}, subscriptions.ErrUnavailable
	case "hangs":
		<-ctx.Done()
		return subscriptions.Progress{}, ctx.Err()
	}
	return b.Service.Progress(ctx, name, at)
}

func TestOf_EachSubscriptionOfTheTopic(t *testing.T) {
	t.Parallel()
	s := broken{subfake.New("i1")}
	for _, sub := range []subscriptions.Subscription{
		{Name: "all", Topics: []string{"t-*"}},
		{Name: "by-name", Topics: []string{"t-i1"}, Types: []string{"Made"}, Filter: `data.n > 1`},
		{Name: "type", Topics: []string{"t-i1"}, Types: []string{"Un*"}},
		{Name: "filter", Topics: []string{"t-i1"}, Filter: `data.n > 2`},
		{Name: "undecidable", Topics: []string{"t-i1"}, Filter: `data.none > 2`},
		{Name: "fails", Topics: []string{"*"}},
		{Name: "hangs", Topics: []string{"*"}},
		{Name: "other", Topics: []string{"t"}},
	} {
		if _, err := s.Put(t.Context(), sub, ""); err != nil {
			t.Fatal(err)
		}
	}
	s.Publish("all", "k", `{}`)
	r := &kgo.Record{
		Topic: "t-i1", Timestamp: time.Now(), Value: []byte(`{"n":2}`),
		Headers: []kgo.RecordHeader{{Key: outbox.HeaderType, Value: []byte("Made")}, {Key: outbox.HeaderContentType, Value: []byte("application/json")}},
	}
	got, err := Of(t.Context(), s, nil, r)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]subscriptions.ProgressState{
		"all": subscriptions.ProgressWaiting, "by-name": subscriptions.ProgressCompleted, "type": subscriptions.ProgressNotSelected, "filter": subscriptions.ProgressNotSelected,
		"undecidable": subscriptions.ProgressCompleted, "fails": subscriptions.ProgressUnknown, "hangs": subscriptions.ProgressUnknown,
	}
	for i, p := range got {
		if p.State != want[p.Subscription] || i > 0 && got[i-1].Subscription > p.Subscription {
			t.Errorf("%+v, want %s", p, want[p.Subscription])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d subscriptions %+v, want %d", len(got), got, len(want))
	}
	if _, err := s.Put(t.Context(), subscriptions.Subscription{Name: "all", Topics: []string{"t-*"}, Filter: `data.n > 2`}, ""); err != nil {
		t.Fatal(err)
	}
	if got, err := Of(t.Context(), s, nil, r); err != nil || got[0].Subscription != "all" || got[0].State != subscriptions.ProgressNotSelected {
		t.Errorf("Of() after a change of the filter = %+v, %v; want that the message is not selected", got, err)
	}
	s.Fail(errors.New("away"))
	if got, err := Of(t.Context(), s, nil, r); err == nil {
		t.Errorf("Of() without a list = %+v", got)
	}
	if got, err := Of(t.Context(), subfake.New("i2"), nil, r); got == nil || len(got) > 0 || err != nil {
		t.Errorf("Of() without subscriptions = %#v, %v", got, err)
	}
}

// A filter reads the payload that is decoded by its schema. While that cannot be read, the
// subscription itself is asked.
func TestOf_DecodedPayload(t *testing.T) {
	t.Parallel()
	fake := srfake.New()
	t.Cleanup(fake.Close)
	fake.SeedSchema("t-i1-value", 1, 1, sr.Schema{Type: sr.TypeAvro, Schema: `{"type":"record","name":"S","fields":[{"name":"n","type":"long"}]}`})
	s := subfake.New("i1")
	for name, filter := range map[string]string{"yes": `data.n == 2`, "no": `data != null && data.n == 3`} {
		if _, err := s.Put(t.Context(), subscriptions.Subscription{Name: name, Topics: []string{"t-i1"}, Filter: filter}, ""); err != nil {
			t.Fatal(err)
		}
	}
	r := &kgo.Record{Topic: "t-i1", Timestamp: time.Now(), Value: []byte{0, 0, 0, 0, 1, 4}}
	for _, away := range []bool{false, true} {
		if away {
			fake.Close()
		}
		schemas, err := registry.New(fake.URL(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Of(t.Context(), s, schemas, r)
		if err != nil || len(got) != 2 || (got[0].State == subscriptions.ProgressNotSelected) == away || got[1].State == subscriptions.ProgressNotSelected {
			t.Errorf("registry away %t: %+v, %v", away, got, err)
		}
	}
}
