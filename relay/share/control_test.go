package share

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (w *world) control() *Control {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(w.net.DialContext))
	if err != nil {
		w.t.Fatal(err)
	}
	w.closers = append(w.closers, client.Close)
	return &Control{Client: client, Name: "outbox.relay.test"}
}

// Divide adds and removes partitions, and State contains the partitions and members.
func TestControl_DividesAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		c := w.control()
		var steps []string
		for _, x := range []struct {
			shards int
			steps  string
		}{{4, "made"}, {6, "extended"}, {6, ""}, {2, "deleted made"}, {4, "extended"}} {
			steps = nil
			if err := c.Divide(t.Context(), x.shards, func(s string) error { steps = append(steps, s); return nil }); err != nil {
				t.Fatal(err)
			}
			s, err := c.State(t.Context())
			if err != nil || s.Partitions != x.shards || len(s.Members) > 0 || strings.Join(steps, " ") != x.steps {
				t.Errorf("divided into %d: %+v, %v by steps %q, want %q", x.shards, s, err, steps, x.steps)
			}
		}
		w.join("a", nil)
		w.until(10*time.Second, "a owns all", func() bool { return w.number("a") == 4 })
		if s, err := c.State(t.Context()); err != nil || s.Partitions != 4 || len(s.Members) != 1 {
			t.Errorf("State() with a member = %+v, %v", s, err)
		}
	})
}

// The error names a missing right.
func TestControl_NamesTheRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		c := w.control()
		if err := c.Divide(t.Context(), 4, nil); err != nil {
			t.Fatal(err)
		}
		w.cluster.ControlKey(kmsg.CreatePartitions.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
			resp.Topics = append(resp.Topics, kmsg.CreatePartitionsResponseTopic{Topic: c.Topic(), ErrorCode: kerr.TopicAuthorizationFailed.Code})
			return resp, nil, true
		})
		w.cluster.ControlKey(kmsg.DeleteTopics.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			topic := c.Topic()
			resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
			resp.Topics = append(resp.Topics, kmsg.DeleteTopicsResponseTopic{Topic: &topic, ErrorCode: kerr.TopicAuthorizationFailed.Code})
			return resp, nil, true
		})
		for shards, right := range map[int]string{6: "the right ALTER", 2: "the right DELETE"} {
			if err := c.Divide(t.Context(), shards, nil); err == nil || !strings.Contains(err.Error(), right) {
				t.Errorf("Divide(%d) error = %v, want %q", shards, err, right)
			}
		}
	})
}
