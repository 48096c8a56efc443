//go:build cloud

package cloud

import (
	"errors"
	"io"
	"io/fs"
	"testing"

	"gocloud.dev/blob/memblob"
)

// A bucket of gocloud.dev/blob keeps the contract of archive.Bucket.
func TestBucket(t *testing.T) {
	t.Parallel()
	b := &bucket{memblob.OpenBucket(nil)}
	defer func() { _ = b.Close() }()
	for _, key := range []string{"2/b", "2/a", "payloads/x"} {
		if err := b.Write(t.Context(), key, []byte(key), "text/plain"); err != nil {
			t.Fatal(err)
		}
	}
	var keys string
	for o, err := range b.List(t.Context(), "2") {
		if err != nil || o.ModTime.IsZero() {
			t.Fatalf("object %+v, %v", o, err)
		}
		keys += o.Key + " "
	}
	if keys != "2/a 2/b " {
		t.Errorf("objects %q, want those with the prefix, in order", keys)
	}
	r, err := b.Open(t.Context(), "2/a")
	if err != nil {
		t.Fatal(err)
	}
	if content, err := io.ReadAll(r); string(content) != "2/a" || err != nil {
		t.Errorf("content %q, %v", content, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := b.Delete(t.Context(), "2/a"); err != nil {
			t.Errorf("Delete() error = %v, also for a missing object want nil", err)
		}
	}
	if _, err := b.Open(t.Context(), "2/a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open() of a missing object: %v, want fs.ErrNotExist", err)
	}
}
