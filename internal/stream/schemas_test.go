package stream

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
)

// Live and missed events have the decoded payload, beside the payload itself, as the messages
// of subscriptions do. One with an unknown schema, or whose JSON is too large, stays as it is.
func TestStream_DecodesBySchemas(t *testing.T) {
	t.Parallel()
	fake := srfake.New()
	t.Cleanup(fake.Close)
	fake.SeedSchema("a-value", 1, 1, sr.Schema{Type: sr.TypeAvro, Schema: `{"type":"record","name":"S","fields":[{"name":"n","type":"long"}]}`})
	fake.SeedSchema("large-value", 1, 2, sr.Schema{Type: sr.TypeAvro, Schema: `{"type":"array","items":"null"}`})
	schemas, err := registry.New(fake.URL(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t, func(c *Config) { c.Schemas = schemas })
	live := b.subscribe(t, Filter{Topics: []string{"a"}}, nil)
	defer live.Close()
	from := live.Position()
	type event struct {
		Data   json.RawMessage
		Text   *string `json:"data_text"`
		Base64 string  `json:"data_base64"`
	}
	check := func(s *Subscription, value []byte, want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		text, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var e event
		if err := json.Unmarshal(text, &e); err != nil || string(e.Data) != want {
			t.Errorf("the data of %x is %s, %v, want %s", value, e.Data, err, want)
		}
		if want != "" && e.Base64 != base64.StdEncoding.EncodeToString(value) {
			t.Errorf("the payload of %x is %q beside data", value, e.Base64)
		}
	}
	// The array has 400,000 nulls: its JSON is larger than 1 MiB.
	values := []struct {
		value []byte
		want  string
	}{{[]byte{0, 0, 0, 0, 1, 14}, `{"n":7}`}, {[]byte{0, 0, 0, 0, 9, 14}, ""}, {[]byte{0, 0, 0, 0, 2, 0x80, 0xea, 0x30, 0}, ""}, {[]byte{0, 0, 0, 0, 1, 16}, `{"n":8}`}}
	for _, v := range values {
		if err := b.producer.ProduceSync(t.Context(), &kgo.Record{Topic: "a", Partition: 0, Key: []byte("k"), Value: v.value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		check(live, v.value, v.want)
	}
	missed := b.subscribe(t, Filter{Topics: []string{"a"}}, from)
	defer missed.Close()
	for _, v := range values {
		check(missed, v.value, v.want)
	}
}

// hanging never answers.
type hanging struct{ calls int }

// Decode implements Schemas.
func (h *hanging) Decode(ctx context.Context, _ *kafkarecord.Event) error {
	h.calls++
	<-ctx.Done()
	return fmt.Errorf("no answer: %w", registry.ErrUnavailable)
}

// A registry that hangs delays few events, so that the buffers of clients do not overflow, and
// is asked again later.
func TestDecoder_ShortWaitForSchemas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := new(hanging)
		d := decoder{schemas: h}
		text := strings.Repeat("x", 10)
		began := time.Now()
		for range 400 {
			e := kafkarecord.Event{Text: &text}
			if d.decode(&e); e.Text != &text || e.Data != nil {
				t.Fatalf("the event changed: %+v", e)
			}
		}
		if took := time.Since(began); took > schemaTimeout+400*hurriedTimeout || h.calls != 400 {
			t.Errorf("400 events took %s and %d calls", took, h.calls)
		}
		time.Sleep(registry.RetryAfter)
		began = time.Now()
		d.decode(new(kafkarecord.Event))
		if took := time.Since(began); took != schemaTimeout {
			t.Errorf("a later event waits %s, want %s", took, schemaTimeout)
		}
	})
}
