package trace

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

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
	got, err := Of(t.Context(), s, r)
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
	s.Fail(errors.New("away"))
	if got, err := Of(t.Context(), s, r); err == nil {
		t.Errorf("Of() without a list = %+v", got)
	}
	if got, err := Of(t.Context(), subfake.New("i2"), r); got == nil || len(got) > 0 || err != nil {
		t.Errorf("Of() without subscriptions = %#v, %v", got, err)
	}
}
