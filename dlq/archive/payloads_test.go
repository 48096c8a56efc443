package archive

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
)

var _ payload.Store = (*Archive)(nil)

// rowTTL has no retentions, and rows of one age.
type rowTTL time.Duration

func (rowTTL) Retentions(context.Context) (map[string]time.Duration, error) { return nil, nil }

func (d rowTTL) RowTTL(context.Context, string) (time.Duration, error) { return time.Duration(d), nil }

func withPayloads(keep, ttl time.Duration) func(*Config) {
	return func(c *Config) { c.Keep, c.Tables, c.PayloadTable = keep, rowTTL(ttl), "outbox.outbox_messages" }
}

// putPayload stores a payload as if it was written now, by the clock of the test.
func (b *fixture) putPayload(content string) (key string) {
	b.Helper()
	key = payload.Key([]byte(content), at(b.now.Load()))
	b.must(b.archive.Put(b.Context(), key, []byte(content)))
	b.age(key)
	return key
}

// age sets the time of the last write of a payload to that of the clock.
func (b *fixture) age(key string) {
	b.Helper()
	b.must(os.Chtimes(filepath.Join(b.archive.bucket.(*folder).dir, filepath.FromSlash(key)), at(b.now.Load()), at(b.now.Load())))
}

// checkRenewed checks that a payload was just written, and sets the time to that of the clock.
func (b *fixture) checkRenewed(by, key string) {
	b.Helper()
	info, err := os.Stat(filepath.Join(b.archive.bucket.(*folder).dir, filepath.FromSlash(key)))
	b.must(err)
	if time.Since(info.ModTime()) > time.Hour {
		b.Errorf("%s does not renew the payload, which was written at %s", by, info.ModTime())
	}
	b.age(key)
}

// refer stores a dead letter that refers to a payload.
func (b *fixture) refer(key string, to dlq.Status) gocql.UUID {
	b.Helper()
	l := awkward()
	l.EventID, l.AggregateID = gocql.MustRandomUUID(), gocql.MustRandomUUID().String()
	l.Status, l.Unblocked, l.Outcome, l.ResolvedAt, l.Replays, l.EditedID, l.Edit = dlq.Pending, false, dlq.Outcome{}, time.Time{}, 0, gocql.UUID{}, nil
	l.FirstFailedAt, l.LastFailedAt = at(b.now.Load()), at(b.now.Load())
	l.Headers, l.Payload = map[string]string{payload.Header: key}, []byte{}
	_, err := b.store.Write(b.Context(), l)
	b.must(err)
	if to == dlq.Resolved {
		b.resolve(l.EventID)
	}
	return l.EventID
}

func (b *fixture) payloads() (keys []string) {
	b.Helper()
	keys, err := b.archive.oldPayloads(b.Context(), time.Now().AddDate(10, 0, 0))
	b.must(err)
	return keys
}

func TestArchive_StoresPayloads(t *testing.T) {
	t.Parallel()
	a, dir := openDir(t)
	content := []byte("abc")
	key := payload.Key(content, time.Now())
	if _, err := payload.Load(t.Context(), a, key); !errors.Is(err, payload.ErrNotFound) || !strings.Contains(err.Error(), key) {
		t.Errorf("Load() before Put() = %v, want ErrNotFound and the key", err)
	}
	for range 2 {
		if err := a.Put(t.Context(), key, content); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := payload.Load(t.Context(), a, key); err != nil || string(got) != "abc" {
		t.Errorf("Load() = %q, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(key)), []byte("abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := payload.Load(t.Context(), a, key); !errors.Is(err, payload.ErrDamaged) {
		t.Errorf("Load() of another payload = %v, want ErrDamaged", err)
	}
	if err := a.Put(t.Context(), "2027/01/01/x", nil); err == nil {
		t.Error("Put() stores a key that is no reference")
	}
	if err := a.List(t.Context(), time.Time{}, func(m Manifest) error { t.Errorf("the archive contains %s", m.Object); return nil }); err != nil {
		t.Error(err)
	}
}

// A payload lives as long as the longest of: the row, a dead letter in the database, its
// copy in the archive.
func TestSweeper_ExpiresPayloadsAfterEveryCopy(t *testing.T) {
	t.Parallel()
	const keep, day = 100 * 24 * time.Hour, 24 * time.Hour
	b := setup(t, withPayloads(keep, 7*day))
	alone, open, resolved := b.putPayload("alone"), b.putPayload("open"), b.putPayload("resolved")
	id := b.refer(open, dlq.Pending)
	b.refer(resolved, dlq.Resolved)
	has := func(what string, want ...string) {
		t.Helper()
		slices.Sort(want)
		if got := b.payloads(); !slices.Equal(got, want) {
			t.Errorf("%s: the bucket has %q, want %q", what, got, want)
		}
	}
	b.advance(DefaultResolved + day)
	b.sweep() // moves the resolved one to the archive
	b.checkRenewed("sweep", resolved)
	b.advance(keep - DefaultResolved - day)
	b.sweep()
	has("at the end of its retention", alone, open, resolved)
	b.advance(2*day + time.Minute)
	if r := b.sweep(); r.Payloads != 1 {
		t.Errorf("report %+v, want one payload", r)
	}
	has("after it", open, resolved)
	b.advance(DefaultResolved) // the archive's object expires
	b.sweep()
	has("after the archive's copy", open)
	b.resolve(id)
	b.advance(DefaultResolved + day)
	b.sweep()
	b.checkRenewed("later sweep", open)
	has("while the archive has a copy", open)
	b.advance(keep + 3*day)
	b.sweep()
	has("after the last copy")
}

func TestSweeper_PayloadsOutliveTheRows(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, ttl := range []time.Duration{50 * day, 0} {
		b := setup(t, withPayloads(time.Hour, ttl))
		b.putPayload("x")
		b.advance(50*day - time.Hour)
		b.sweep()
		if len(b.payloads()) != 1 {
			t.Errorf("rows live for %s; the payload is removed before", ttl)
		}
		b.advance(3 * day)
		b.sweep()
		if n := len(b.payloads()); (n == 1) != (ttl == 0) {
			t.Errorf("rows live for %s; %d payloads remain after them", ttl, n)
		}
	}
}

// A restored dead letter has its payload for as long as a new one.
func TestSweeper_RenewsPayloads(t *testing.T) {
	t.Parallel()
	b := setup(t, withPayloads(DefaultKeep, 7*24*time.Hour))
	k := b.sweeper
	key := b.putPayload("x")
	id := b.refer(key, dlq.Resolved)
	for _, step := range []struct {
		name   string
		change func(context.Context, []gocql.UUID) ([]error, error)
	}{
		{"purge", func(ctx context.Context, ids []gocql.UUID) ([]error, error) { return k.Purge(ctx, ids, false, eve) }},
		{"restore", func(ctx context.Context, ids []gocql.UUID) ([]error, error) { return k.Restore(ctx, ids, eve) }},
	} {
		b.age(key)
		if errs, err := step.change(t.Context(), []gocql.UUID{id}); err != nil || errs[0] != nil {
			t.Fatalf("%s: %v, %v", step.name, errs, err)
		}
		b.checkRenewed(step.name, key)
	}
}

// listed calls then after its first list of payloads.
type listed struct {
	Bucket
	then func()
}

// List implements Bucket.
func (l *listed) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		l.Bucket.List(ctx, prefix)(yield)
		if then := l.then; prefix == payload.Prefix && then != nil {
			l.then = nil
			then()
		}
	}
}

// An operator moves a dead letter to the archive while another process removes old payloads:
// the payload, which the first has renewed, remains.
func TestSweeper_KeepsPayloadsOfADeadLetterThatMovesMeanwhile(t *testing.T) {
	t.Parallel()
	const keep, day = 100 * 24 * time.Hour, 24 * time.Hour
	b := setup(t, func(c *Config) { withPayloads(keep, 7*day)(c); c.Resolved = -1 })
	key := b.putPayload("x")
	id := b.refer(key, dlq.Resolved)
	b.advance(keep + 3*day)
	folder := b.archive.bucket
	b.archive.bucket = &listed{folder, func() {
		if errs, err := b.sweeper.Purge(t.Context(), []gocql.UUID{id}, false, eve); err != nil || errs[0] != nil {
			t.Errorf("purge: %v, %v", errs, err)
		}
	}}
	b.sweep()
	b.archive.bucket = folder
	if l := b.read(id); l.Archive == "" {
		t.Fatalf("the dead letter is %s and in no archive", l.Status)
	}
	if content, err := payload.Load(t.Context(), b.archive, key); err != nil || string(content) != "x" {
		t.Errorf("the archived dead letter refers to a payload that is gone: %v", err)
	}
}
