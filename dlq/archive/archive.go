package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/klauspost/compress/zstd"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
)

const (
	// objectPrefix is the first digit of the year: it skips payload.Prefix.
	objectPrefix   = "2"
	objectSuffix   = ".jsonl.zst"
	manifestSuffix = ".manifest.json"
	// maxLine bounds a line when objects are read: a payload of some 64 MiB.
	maxLine = 128 << 20
)

var (
	// ErrNotFound is returned for an object or an event that the archive lacks.
	ErrNotFound = errors.New("not in the archive")
	// ErrDamaged is returned for an object that does not match its manifest.
	ErrDamaged = errors.New("the archive's object is damaged")
)

// Manifest describes an object. It lies beside it and is written after the object
// was read back: an object without a manifest is not part of the archive.
type Manifest struct {
	// Object is the key of the object, YYYY/MM/DD/….jsonl.zst, by the day on which
	// it was written.
	Object string `json:"object"`
	// DeadLetters is the number of lines, Bytes the size and SHA256 the checksum, both of
	// the compressed object.
	DeadLetters int    `json:"dead_letters"`
	Bytes       int64  `json:"bytes"`
	SHA256      string `json:"sha256"`
	// From and To are the first and the last first failure of the dead letters.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// ByStatus counts the dead letters by their previous status.
	ByStatus  map[dlq.Status]int `json:"by_status"`
	CreatedAt time.Time          `json:"created_at"`
	By        string             `json:"by"`
	// Events are the event ids of the dead letters, in the object's order.
	Events []string `json:"events"`
}

// Archive is a bucket with dead letters. It is safe for concurrent use.
type Archive struct {
	bucket Bucket
	clock  clocks.Clock
	stored func(key string) // set by tests
}

// Open opens the archive at a path of a folder, which is made if it is missing, at its
// file:// URL, or at a URL with a registered scheme, such as s3://bucket?region=….
func Open(ctx context.Context, where string) (*Archive, error) {
	dir, isFolder := where, !strings.Contains(where, "://")
	if path, ok := strings.CutPrefix(where, "file://"); ok {
		unescaped, err := url.PathUnescape(path)
		if err != nil || strings.Contains(path, "?") {
			return nil, fmt.Errorf("open the archive %s: use file:// and a path without options", hideQuery(where))
		}
		dir, isFolder = unescaped, true
	}
	if !isFolder {
		b, err := openBucket(ctx, where)
		if err != nil {
			return nil, fmt.Errorf("open the archive %s: %w", hideQuery(where), withoutQuery(err, where))
		}
		return New(b), nil
	}
	dir, err := filepath.Abs(filepath.FromSlash(dir))
	if err == nil {
		err = os.MkdirAll(dir, 0o750)
	}
	if err != nil {
		return nil, fmt.Errorf("open the archive %s: %w", where, err)
	}
	return New(&folder{dir}), nil
}

// hideQuery removes the query of a URL, which may contain keys.
func hideQuery(s string) string {
	head, _, cut := strings.Cut(s, "?")
	if cut {
		return head + "?…"
	}
	return head
}

// withoutQuery removes the query of a URL from an error of an SDK, which may contain the URL.
func withoutQuery(err error, where string) error {
	_, query, _ := strings.Cut(where, "?")
	if text := err.Error(); query != "" && strings.Contains(text, query) {
		return errors.New(strings.ReplaceAll(text, query, "…"))
	}
	return err
}

// New is the archive in a bucket that is open. Close closes it.
func New(b Bucket) *Archive { return &Archive{bucket: b, clock: clocks.System{}} }

// Close closes the bucket.
func (a *Archive) Close() error { return a.bucket.Close() }

// Check writes an object, lists and reads it, and deletes it. An archive needs these four
// permissions.
func (a *Archive) Check(ctx context.Context) error {
	key := "check-" + strings.ToLower(rand.Text()[:10]) // begins with neither objectPrefix nor payload.Prefix
	if err := a.store(ctx, key, []byte(key), "text/plain"); err != nil {
		return err
	}
	got, err := a.readAll(ctx, key)
	switch {
	case err != nil:
		err = fmt.Errorf("read %s: %w", key, err)
	case string(got) != key:
		err = fmt.Errorf("read %s: %w: it has %d other bytes", key, ErrDamaged, len(got))
	}
	for _, listed := range a.bucket.List(ctx, key) {
		if listed != nil {
			err = errors.Join(err, fmt.Errorf("list: %w", listed))
		}
	}
	if deleted := a.bucket.Delete(ctx, key); deleted != nil {
		err = errors.Join(err, fmt.Errorf("delete %s: %w", key, deleted))
	}
	return err
}

// Write stores records as one object, reads it back, and stores its manifest only if
// the object is correct. After an error the object may exist without a manifest; then
// it is not part of the archive.
func (a *Archive) Write(ctx context.Context, records []Record, by string) (Manifest, error) {
	if len(records) == 0 {
		return Manifest{}, errors.New("write an archive object: no dead letters")
	}
	now := a.clock.Now().UTC()
	m := Manifest{CreatedAt: now.Truncate(time.Millisecond), By: by, DeadLetters: len(records), ByStatus: make(map[dlq.Status]int)}
	m.Object = now.Format("2006/01/02/150405") + "-" + strings.ToLower(rand.Text()[:10]) + objectSuffix
	var object bytes.Buffer
	enc, err := zstd.NewWriter(&object)
	if err != nil {
		return Manifest{}, fmt.Errorf("compress %s: %w", m.Object, err)
	}
	for i := range records {
		r := &records[i]
		line, err := r.line()
		if err != nil {
			return Manifest{}, err
		}
		if _, err := enc.Write(line); err != nil {
			return Manifest{}, fmt.Errorf("compress %s: %w", m.Object, err)
		}
		m.Events = append(m.Events, r.EventID)
		m.ByStatus[r.Status]++
		if m.From.IsZero() || r.FirstFailedAt.Before(m.From) {
			m.From = r.FirstFailedAt.UTC()
		}
		if r.FirstFailedAt.After(m.To) {
			m.To = r.FirstFailedAt.UTC()
		}
	}
	if err := enc.Close(); err != nil {
		return Manifest{}, fmt.Errorf("compress %s: %w", m.Object, err)
	}
	sum := sha256.Sum256(object.Bytes())
	m.Bytes, m.SHA256 = int64(object.Len()), hex.EncodeToString(sum[:])
	if err := a.store(ctx, m.Object, object.Bytes(), "application/zstd"); err != nil {
		return Manifest{}, err
	}
	if err := a.check(ctx, &m, records); err != nil {
		return Manifest{}, err
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return Manifest{}, fmt.Errorf("manifest of %s: %w", m.Object, err)
	}
	if err := a.store(ctx, m.Object+manifestSuffix, b, "application/json"); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// store writes an object.
func (a *Archive) store(ctx context.Context, key string, content []byte, contentType string) error {
	if err := a.bucket.Write(ctx, key, content, contentType); err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	if a.stored != nil {
		a.stored(key)
	}
	return nil
}

// check reads an object back and compares it with the records, line by line.
func (a *Archive) check(ctx context.Context, m *Manifest, want []Record) error {
	i := 0
	err := a.read(ctx, m, func(line []byte) error {
		if i == len(want) {
			return fmt.Errorf("%s has more lines than %d: %w", m.Object, len(want), ErrDamaged)
		}
		w, err := want[i].line()
		if err != nil {
			return err
		}
		if !bytes.Equal(line, bytes.TrimSuffix(w, []byte("\n"))) {
			return fmt.Errorf("%s line %d differs from the written record: %w", m.Object, i+1, ErrDamaged)
		}
		i++
		return nil
	})
	if err == nil && i != len(want) {
		err = fmt.Errorf("%s has %d lines, want %d: %w", m.Object, i, len(want), ErrDamaged)
	}
	return err
}

// read calls f for each line of an object, and fails with ErrDamaged if the
// object is not the one that m describes.
func (a *Archive) read(ctx context.Context, m *Manifest, f func(line []byte) error) (err error) {
	r, err := a.bucket.Open(ctx, m.Object)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", m.Object, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", m.Object, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	sum := sha256.New()
	count := &counter{}
	tee := io.TeeReader(r, io.MultiWriter(sum, count))
	dec, err := zstd.NewReader(tee, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
	if err != nil {
		return fmt.Errorf("read %s: %w: %w", m.Object, ErrDamaged, err)
	}
	defer dec.Close()
	lines := bufio.NewScanner(dec)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for lines.Scan() {
		if err := f(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w: %w", m.Object, ErrDamaged, err)
	}
	if _, err := io.Copy(io.Discard, tee); err != nil {
		return fmt.Errorf("read %s: %w", m.Object, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != m.SHA256 || count.n != m.Bytes {
		return fmt.Errorf("%s has %d bytes with SHA-256 %s, its manifest contains %d with %s: %w", m.Object, count.n, got, m.Bytes, m.SHA256, ErrDamaged)
	}
	return nil
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// List calls f for every manifest, by day, oldest first; stop ends it early when
// f returns dlq.ErrStop. Days before since are left out; zero leaves out none.
func (a *Archive) List(ctx context.Context, since time.Time, f func(Manifest) error) error {
	return a.ListAfter(ctx, "", since, f)
}

// ListAfter is List from behind an object on; empty begins at the first.
func (a *Archive) ListAfter(ctx context.Context, after string, since time.Time, f func(Manifest) error) error {
	for o, err := range a.bucket.List(ctx, objectPrefix) {
		if err != nil {
			return fmt.Errorf("list the archive: %w", err)
		}
		if !strings.HasSuffix(o.Key, objectSuffix+manifestSuffix) {
			continue
		}
		if after != "" && o.Key <= after+manifestSuffix {
			continue
		}
		if day, err := time.Parse("2006/01/02", o.Key[:min(10, len(o.Key))]); err == nil && day.AddDate(0, 0, 1).Before(since) {
			continue
		}
		m, err := a.Manifest(ctx, strings.TrimSuffix(o.Key, manifestSuffix))
		if errors.Is(err, ErrNotFound) {
			continue // it was removed just now
		}
		if err != nil {
			return err
		}
		if err := f(m); err != nil {
			if errors.Is(err, dlq.ErrStop) {
				return nil
			}
			return err
		}
	}
	return nil
}

func (a *Archive) readAll(ctx context.Context, key string) (content []byte, err error) {
	r, err := a.bucket.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return io.ReadAll(r)
}

// Manifest is that of an object; ErrNotFound if the archive has no such object.
func (a *Archive) Manifest(ctx context.Context, object string) (Manifest, error) {
	b, err := a.readAll(ctx, object+manifestSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, fmt.Errorf("%s: %w", object, ErrNotFound)
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("read the manifest of %s: %w", object, err)
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return Manifest{}, fmt.Errorf("manifest of %s: %w: %w", object, ErrDamaged, err)
	}
	if m.Object != object {
		return Manifest{}, fmt.Errorf("the manifest beside %s is that of %q: %w", object, m.Object, ErrDamaged)
	}
	return m, nil
}

// Records calls f for every dead letter of an object, in its order. After the last one
// it fails with ErrDamaged if the object does not match its manifest, so act on the
// records only after Records has returned nil.
func (a *Archive) Records(ctx context.Context, object string, f func(Record) error) error {
	m, err := a.Manifest(ctx, object)
	if err != nil {
		return err
	}
	n := 0
	if err := a.read(ctx, &m, func(line []byte) error {
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("%s line %d: %w: %w", object, n+1, ErrDamaged, err)
		}
		n++
		return f(r)
	}); err != nil {
		return err
	}
	if n != m.DeadLetters {
		return fmt.Errorf("%s has %d dead letters, its manifest %d: %w", object, n, m.DeadLetters, ErrDamaged)
	}
	return nil
}

// DeadLetter reads one dead letter of an object, and verifies the whole object.
func (a *Archive) DeadLetter(ctx context.Context, object string, event gocql.UUID) (Record, error) {
	var found *Record
	id := event.String()
	if err := a.Records(ctx, object, func(r Record) error {
		if r.EventID == id {
			found = &r
		}
		return nil
	}); err != nil {
		return Record{}, err
	}
	if found == nil {
		return Record{}, fmt.Errorf("event %s in %s: %w", event, object, ErrNotFound)
	}
	return *found, nil
}

// Remove removes an object: first its manifest, so that the rest after a crash is not
// part of the archive.
func (a *Archive) Remove(ctx context.Context, object string) error {
	for _, key := range []string{object + manifestSuffix, object} {
		if err := a.bucket.Delete(ctx, key); err != nil {
			return fmt.Errorf("remove %s: %w", key, err)
		}
	}
	return nil
}

// orphanAge is the least age of an object without a manifest whose writer is considered
// dead.
const orphanAge = 24 * time.Hour

// RemoveOrphans removes objects whose manifest was never written. Their dead letters
// are complete in the database.
func (a *Archive) RemoveOrphans(ctx context.Context) (n int, err error) {
	for o, err := range a.bucket.List(ctx, objectPrefix) {
		if err != nil {
			return n, fmt.Errorf("list the archive: %w", err)
		}
		if !strings.HasSuffix(o.Key, objectSuffix) || a.clock.Now().Sub(o.ModTime) < orphanAge {
			continue
		}
		ok, err := a.bucket.Exists(ctx, o.Key+manifestSuffix)
		if err != nil {
			return n, fmt.Errorf("check the manifest of %s: %w", o.Key, err)
		}
		if ok {
			continue
		}
		if err := a.bucket.Delete(ctx, o.Key); err != nil {
			return n, fmt.Errorf("remove %s: %w", o.Key, err)
		}
		n++
	}
	return n, nil
}
