package doctor

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
)

// readOnly is a bucket that refuses to be written.
type readOnly struct{ archive.Bucket }

func (readOnly) Write(context.Context, string, []byte, string) error {
	return errors.New("NoSuchBucket")
}

func (readOnly) Close() error { return nil }

// The doctor reports whether the archive can be listed, read, written and deleted, and leaves
// nothing in it.
func TestDoctor_Archive(t *testing.T) {
	t.Parallel()
	archive.Register("readonly", func(context.Context, string) (archive.Bucket, error) { return readOnly{}, nil })
	check := func(where string) []Finding {
		t.Helper()
		c, err := parseConfig(t, "", map[string]string{"OUTBOX_ARCHIVE_URL": where})
		if err != nil {
			t.Fatal(err)
		}
		return checkArchive(t.Context(), c)
	}
	if got := check(""); len(got) != 0 {
		t.Errorf("without an archive: %+v", got)
	}
	dir := t.TempDir()
	if got := check(dir); len(got) != 1 || !got[0].OK || !strings.Contains(got[0].Detail, dir) {
		t.Errorf("a folder: %+v", got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the folder has %v, %v, want nothing", left, err)
	}
	got := check("readonly://bucket?key=canary")
	if len(got) != 1 {
		t.Fatalf("a bucket that refuses writes: %+v", got)
	}
	for _, f := range got {
		if f.OK || !strings.Contains(f.Detail, "readonly://bucket: ") || !strings.Contains(f.Detail, "NoSuchBucket") ||
			!strings.Contains(f.Fix, "archive.url") || strings.Contains(f.Detail, "canary") {
			t.Errorf("a bucket that refuses writes: %+v", f)
		}
	}
}
