package relay

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/scyllatest"
)

// In an outage of the database the log says it now and then, not each second.
func TestReplayer_SaysOnceThatRequestsCannotBeRead(t *testing.T) {
	t.Parallel()
	_, session := scyllatest.Start(t)
	open := func(keyspace string) *dlq.Store {
		s, err := dlq.Open(session, keyspace)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var said bytes.Buffer
	r := &replayer{
		p:   &publisher{letters: &letters{store: open("nowhere"), table: "outbox.outbox_messages"}},
		log: slog.New(slog.NewTextHandler(&said, nil)),
	}
	lines := func() int { return bytes.Count(said.Bytes(), []byte("cannot read the requests")) }
	for range 3 {
		r.requests(t.Context())
	}
	if lines() != 1 {
		t.Errorf("the log said it %d times, want once:\n%s", lines(), &said)
	}
	r.unread = r.unread.Add(-sayAgain)
	r.requests(t.Context())
	if lines() != 2 {
		t.Errorf("after a minute the log had said it %d times, want twice", lines())
	}
	r.p.letters.store = open("outbox")
	r.requests(t.Context())
	r.p.letters.store = open("nowhere")
	r.requests(t.Context())
	if lines() != 3 {
		t.Errorf("in the next outage the log had said it %d times, want three", lines())
	}
}
