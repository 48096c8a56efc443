package admin

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
)

// listBody is the answer of a listing.
type listBody struct {
	DeadLetters []Summary `json:"dead_letters"`
	Next        string    `json:"next"`
}

// all walks a listing by its cursors and returns the event ids.
func (b *fixture) all(t *testing.T, query url.Values, limit int) (ids []string) {
	t.Helper()
	query.Set("limit", fmt.Sprint(limit))
	for page := 0; ; page++ {
		var l listBody
		b.ask(t, access.Viewer, "GET", "/v1/dead-letters?"+query.Encode(), "").into(t, http.StatusOK, &l)
		for _, s := range l.DeadLetters {
			ids = append(ids, s.EventID)
		}
		if l.Next == "" {
			return ids
		}
		if len(l.DeadLetters) != limit || page > 1000 {
			t.Fatalf("page %d has %d dead letters and a cursor, want %d", page, len(l.DeadLetters), limit)
		}
		if query.Set("cursor", l.Next); page == 0 {
			other := maps.Clone(query)
			other.Set("event_type", "another")
			other.Set("status", "archived")
			if p := b.ask(t, access.Viewer, "GET", "/v1/dead-letters?"+other.Encode(), "").problemIn(t, http.StatusUnprocessableEntity); p.Errors[0].Location != "query.cursor" {
				t.Errorf("the cursor of another filter: %+v", p)
			}
		}
	}
}

// Pages of any size show the same dead letters, once each and in the same order, also
// where they lie in several hours and some at the same time.
func TestList_CursorsCrossHours(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	now := time.Now().UTC().Truncate(time.Millisecond)
	for i := range 40 {
		l := testDeadLetter(fmt.Sprint("a", i), 1)
		if i%2 == 0 {
			l.ErrorClass = "refused"
		}
		b.writeDeadLetter(t, l, now.Add(-time.Duration(i/4)*25*time.Minute)) // four at a time, over four hours
	}
	want := b.all(t, url.Values{}, 500)
	if len(want) != 40 {
		t.Fatalf("listed %d dead letters of 40", len(want))
	}
	for _, limit := range []int{1, 3, 4, 7, 39, 40} {
		if got := b.all(t, url.Values{}, limit); !slices.Equal(got, want) {
			t.Errorf("by %d: other letters, or in another order", limit)
		}
	}
	some := b.all(t, url.Values{"error_class": {"refused"}, "status": {"suspended,pending"}, "since": {now.Add(-99 * time.Minute).Format(time.RFC3339)}, "until": {now.Add(-20 * time.Minute).Format(time.RFC3339)}}, 3)
	if len(some) != 6 { // of the groups at -25, -50 and -75 minutes, two each
		t.Errorf("by class and time %d letters, want 6", len(some))
	}
}

func TestDeadLetter_IsComplete(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	binary := testDeadLetter("a", 1)
	binary.Payload = []byte{0xff, 0x00, 0xfe}
	b.writeDeadLetter(t, binary, time.Time{})
	for i := range 3 {
		f := testDeadLetter("a", int64(i+2))
		f.Status, f.ErrorClass = dlq.Blocked, "behind"
		b.writeDeadLetter(t, f, time.Time{})
	}
	text := testDeadLetter("b", 1)
	text.Payload = []byte(`{"s":"</script><script>alert(1)</script>ä"}`)
	b.writeDeadLetter(t, text, time.Time{})
	empty := testDeadLetter("c", 1)
	empty.Payload, empty.Headers = nil, nil
	b.writeDeadLetter(t, empty, time.Time{})

	var got DeadLetterBody
	a := b.ask(t, access.Viewer, "GET", "/v1/dead-letters/"+binary.EventID.String(), "").into(t, http.StatusOK, &got)
	if a.header.Get("ETag") != `"1"` || got.Version != 1 || got.PayloadText != nil || got.PayloadBase64 == nil || *got.PayloadBase64 != base64.StdEncoding.EncodeToString(binary.Payload) {
		t.Errorf("binary dead letter: %s %s", a.header.Get("ETag"), a.body)
	}
	if got.Position != 1 || got.ChainLength != 4 || got.FollowerCount != 3 || len(got.Followers) != 3 || got.Followers[0].Sequence != 2 {
		t.Errorf("its chain: position %d of %d, %d followers %+v", got.Position, got.ChainLength, got.FollowerCount, got.Followers)
	}
	if got.ErrorCode != "MESSAGE_TOO_LARGE" || len(got.ErrorChain) != 2 || got.Metadata["host"] != "h1" || got.Headers["traceparent"] != "00-1" || len(got.History) != 1 || got.History[0].Action != dlq.ActionWrite {
		t.Errorf("its parts: %s", a.body)
	}
	if want := []dlq.Action{dlq.ActionReplay, dlq.ActionUnblock, dlq.ActionSuspend, dlq.ActionResolve, dlq.ActionDiscard, dlq.ActionEdit, dlq.ActionRedirect}; !slices.Equal(got.May, want) {
		t.Errorf("may = %v, want %v", got.May, want)
	}
	got = DeadLetterBody{}
	a = b.ask(t, access.Viewer, "GET", "/v1/dead-letters/"+text.EventID.String(), "").into(t, http.StatusOK, &got)
	if got.PayloadText == nil || *got.PayloadText != string(text.Payload) || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("text dead letter: %s", a.body)
	}
	got = DeadLetterBody{}
	b.ask(t, access.Viewer, "GET", "/v1/dead-letters/"+empty.EventID.String(), "").into(t, http.StatusOK, &got)
	if got.PayloadText != nil || got.PayloadBase64 != nil || got.Headers == nil {
		t.Errorf("null payload: %+v", got)
	}
	b.ask(t, access.Viewer, "GET", "/v1/dead-letters/01a2005c-395d-72e3-8401-994110828553", "").problemIn(t, http.StatusNotFound)
}

// A payload in the wire format of a schema registry is decoded, beside its bytes. One that
// cannot be, or whose JSON is too large, stays as it is.
func TestDeadLetter_DecodedBySchema(t *testing.T) {
	t.Parallel()
	fake := srfake.New()
	t.Cleanup(fake.Close)
	fake.SeedSchema("OrderCreated-value", 1, 1, sr.Schema{Type: sr.TypeAvro, Schema: `{"type":"record","name":"S","fields":[{"name":"v","type":"string"}]}`})
	fake.SeedSchema("nulls", 1, 2, sr.Schema{Type: sr.TypeAvro, Schema: `{"type":"array","items":"null"}`})
	schemas, err := registry.New(fake.URL(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t, func(c *Config) { c.Registry = schemas })
	read := func(payload []byte) (got DeadLetterBody) {
		t.Helper()
		l := testDeadLetter(fmt.Sprint(payload[:min(len(payload), 8)]), 1)
		l.Payload = payload
		b.writeDeadLetter(t, l, time.Time{})
		b.ask(t, access.Viewer, "GET", "/v1/dead-letters/"+l.EventID.String(), "").into(t, http.StatusOK, &got)
		if want := base64.StdEncoding.EncodeToString(payload); got.PayloadBase64 == nil || *got.PayloadBase64 != want || got.PayloadBytes != len(payload) {
			t.Errorf("the payload %q is returned as %+v", payload, got)
		}
		return got
	}
	if got := read([]byte("\x00\x00\x00\x00\x01\x02a")); got.PayloadJSON == nil || *got.PayloadJSON != `{"v":"a"}` {
		t.Errorf("Avro: %+v", got)
	}
	nulls := append(binary.AppendVarint([]byte{0, 0, 0, 0, 2}, maxDecoded/4), 0)
	for what, payload := range map[string][]byte{"not of its schema": {0, 0, 0, 0, 1, 9, 0xff}, "of an unknown schema": {0, 0, 0, 0, 9, 0}, "large": nulls, "JSON": []byte("{}")} {
		if got := read(payload); got.PayloadJSON != nil {
			t.Errorf("a payload that is %s is decoded to %d bytes", what, len(*got.PayloadJSON))
		}
	}
}

func TestStatsAndGroups(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	at := time.Now().UTC().Truncate(time.Millisecond).Add(-time.Minute)
	for i := range 5 {
		l := testDeadLetter(fmt.Sprint("a", i), 1)
		l.ErrorText = fmt.Sprintf("record of %d bytes is too large", 1000+i)
		b.writeDeadLetter(t, l, at.Add(time.Duration(i)*time.Second))
	}
	other := testDeadLetter("b", 1)
	other.ErrorClass, other.ErrorText = "refused", "no"
	b.writeDeadLetter(t, other, at)
	done := b.writeDeadLetter(t, testDeadLetter("c", 1), at)
	if err := b.store.Discard(t.Context(), done.EventID, dlq.Actor{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	var st StatsBody
	b.ask(t, access.Viewer, "GET", "/v1/dead-letters/stats", "").into(t, http.StatusOK, &st)
	if st.Total != 7 || st.Open != 6 || st.ByStatus[dlq.Suspended] != 6 || st.ByStatus[dlq.Resolved] != 1 || st.OpenByClass["record_too_large"] != 5 || st.Oldest == nil || !st.Oldest.Equal(at) {
		t.Errorf("stats: %+v", st)
	}
	var g struct {
		Groups   []groupBody `json:"groups"`
		LookedAt int         `json:"looked_at"`
		Sampled  bool        `json:"sampled"`
	}
	b.ask(t, access.Viewer, "GET", "/v1/dead-letters/groups", "").into(t, http.StatusOK, &g)
	if len(g.Groups) != 2 || g.LookedAt != 6 || g.Sampled {
		t.Fatalf("groups: %+v", g)
	}
	first := g.Groups[0]
	if first.Count != 5 || first.ErrorText != "record of # bytes is too large" || first.ErrorCode != "MESSAGE_TOO_LARGE" || !first.First.Equal(at) || !first.Last.Equal(at.Add(4*time.Second)) ||
		first.EventType != "OrderCreated" || first.Topic != "OrderCreated" || first.ByStatus[dlq.Suspended] != 5 || first.Sample == "" {
		t.Errorf("the first group: %+v", first)
	}
	b.ask(t, access.Viewer, "GET", "/v1/dead-letters/groups?status=resolved", "").into(t, http.StatusOK, &g)
	if len(g.Groups) != 1 || g.Groups[0].Sample != done.EventID.String() {
		t.Errorf("groups of resolved ones: %+v", g)
	}
}

// A list with payloads has each in one form, and none without the parameter. A page ends where they become
// large, and the next one continues there.
func TestList_WithPayload(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	for i, payload := range [][]byte{[]byte(`{"n":1}`), {0xff, 0xfe}, nil, bytes.Repeat([]byte("x"), 5<<20), bytes.Repeat([]byte("y"), 5<<20)} {
		l := testDeadLetter(fmt.Sprint("a", i), 1)
		l.Payload = payload
		b.writeDeadLetter(t, l, at.Add(-time.Duration(i)*time.Second))
	}
	var all []ListedDeadLetter
	pages := 0
	for cursor := ""; ; pages++ {
		var page deadLettersBody
		b.ask(t, access.Viewer, "GET", "/v1/dead-letters?with_payload=true&cursor="+cursor, "").into(t, http.StatusOK, &page)
		all = append(all, page.DeadLetters...)
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(all) != 5 || pages != 1 {
		t.Fatalf("%d dead letters in %d pages, want 5 in 2", len(all), pages+1)
	}
	text, coded := all[0], all[1]
	if text.PayloadText == nil || *text.PayloadText != `{"n":1}` || text.PayloadBase64 != nil || text.ContentType != "application/json" {
		t.Errorf("a payload of text is %+v", text)
	}
	if coded.PayloadText != nil || coded.PayloadBase64 == nil || *coded.PayloadBase64 != "//4=" {
		t.Errorf("a payload of bytes is %+v", coded)
	}
	if null := all[2]; null.PayloadText != nil || null.PayloadBase64 != nil {
		t.Errorf("a null payload is %+v", null)
	}
	if large := all[4]; large.AggregateID != "a4" || large.PayloadText == nil || len(*large.PayloadText) != 5<<20 {
		t.Errorf("the payload of the last page is missing: %s", large.AggregateID)
	}
	var page deadLettersBody
	b.ask(t, access.Viewer, "GET", "/v1/dead-letters", "").into(t, http.StatusOK, &page)
	if l := page.DeadLetters[0]; len(page.DeadLetters) != 5 || l.PayloadText != nil || l.ContentType != "" {
		t.Errorf("without the parameter there are %d, the first %+v", len(page.DeadLetters), l)
	}
	// A consumer may read payloads of its own subscriptions alone, in lists as in single requests.
	b.ask(t, consumerOfMail, "GET", "/v1/dead-letters?with_payload=true", "").problemIn(t, http.StatusForbidden)
}
