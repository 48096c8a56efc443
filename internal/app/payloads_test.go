package app

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
)

func TestPayloadStore_IsTheArchiveAboveTheSizeOfARecord(t *testing.T) {
	t.Parallel()
	c := defaults()
	c.Archive.URL = filepath.Join(t.TempDir(), "archive")
	c.Messages.MaxBytes = outbox.MaxEventBytes
	if s, closeStore, err := payloadStore(t.Context(), c); s != nil || err != nil || closeStore() != nil {
		t.Errorf("payloadStore() for messages that fit = %v, %v, want none", s, err)
	}
	c.Messages.MaxBytes++
	s, closeStore, err := payloadStore(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	content := []byte("x")
	key := payload.Key(content, time.Now())
	if err := errors.Join(s.Put(t.Context(), key, content), closeStore()); err != nil {
		t.Error(err)
	}
	if files, err := filepath.Glob(filepath.Join(c.Archive.URL, "payloads", "*", "1-*")); err != nil || len(files) != 1 {
		t.Errorf("the archive's folder has %q, %v, want the payload", files, err)
	}
	c.Archive.URL = ""
	_, _, err = payloadStore(t.Context(), c)
	for _, want := range []string{"messages.max_bytes: 1000001", "1000000", "set it"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("payloadStore() without an archive = %v, want %q", err, want)
		}
	}
}

func TestSweep_PayloadsLiveAsLongAsTheOutbox(t *testing.T) {
	t.Parallel()
	c := defaults()
	c.Scylla.Keyspace = "shop"
	if got := c.Sweep(nil, nil).PayloadTable; got != "shop."+outbox.DefaultTableName {
		t.Errorf("the sweeper reads the TTL of %q", got)
	}
}
