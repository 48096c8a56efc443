package payload_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
)

var day = time.Date(2027, 2, 14, 23, 59, 0, 0, time.UTC)

func folder(t *testing.T) (*payload.Folder, string) {
	t.Helper()
	dir := t.TempDir()
	f, err := payload.NewFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f, dir
}

func put(t *testing.T, f *payload.Folder, content string, at time.Time) string {
	t.Helper()
	key := payload.Key([]byte(content), at)
	if err := f.Put(t.Context(), key, []byte(content)); err != nil {
		t.Fatal(err)
	}
	return key
}

func TestParse_OnlyTheExactForm(t *testing.T) {
	t.Parallel()
	key := payload.Key([]byte("abc"), day)
	if want := "payloads/2027-02-14/3-ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; key != want {
		t.Fatalf("Key() = %q, want %q", key, want)
	}
	r, err := payload.Parse(key)
	if err != nil || r.Bytes != 3 || !r.Day.Equal(time.Date(2027, 2, 14, 0, 0, 0, 0, time.UTC)) {
		t.Fatalf("Parse() = %+v, %v", r, err)
	}
	for _, bad := range []string{
		"", "payloads", "payloads/", strings.TrimPrefix(key, "payloads/"), "/" + key, "../" + key, key + "/..", key + "0", key + " ",
		strings.Replace(key, "2027-02-14", "..", 1), strings.Replace(key, "2027-02-14", "2027-2-14", 1), strings.Replace(key, "/3-", "/03-", 1),
		strings.Replace(key, "/3-", "/-3-", 1), strings.Replace(key, "/3-", "/+3-", 1), strings.Replace(key, "/3-", "/99999999999-", 1),
		strings.Replace(key, "ba78", "BA78", 1), key[:len(key)-2], strings.Replace(key, "ba78", "../8", 1),
	} {
		if _, err := payload.Parse(bad); err == nil {
			t.Errorf("Parse(%q) is valid", bad)
		}
	}
}

func TestFolder_ReturnsWhatWasPut(t *testing.T) {
	t.Parallel()
	f, dir := folder(t)
	key := put(t, f, "abc", day)
	put(t, f, "abc", day) // a repetition
	got, err := payload.Load(t.Context(), f, key)
	if err != nil || string(got) != "abc" {
		t.Fatalf("Load() = %q, %v", got, err)
	}
	files, err := os.ReadDir(filepath.Join(dir, "payloads", "2027-02-14"))
	if err != nil || len(files) != 1 {
		t.Errorf("the folder has %v, %v; want the payload alone", files, err)
	}
}

func TestResolve_NamesTheReferenceInErrors(t *testing.T) {
	t.Parallel()
	f, dir := folder(t)
	key := put(t, f, "abc", day)
	path := filepath.Join(dir, filepath.FromSlash(key))
	headers := map[string]string{payload.Header: key}
	resolve := func(want error) {
		t.Helper()
		_, err := payload.Resolve(t.Context(), f, headers, nil)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), key) {
			t.Errorf("Resolve() = %v, want %v with the key", err, want)
		}
	}
	for _, content := range []string{"abd", "ab", "abcd", ""} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		resolve(payload.ErrDamaged)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	resolve(payload.ErrNotFound)
	if got, err := payload.Resolve(t.Context(), f, nil, []byte("value")); err != nil || string(got) != "value" {
		t.Errorf("Resolve() without a reference = %q, %v", got, err)
	}
	headers[payload.Header] = "../../etc/passwd"
	if _, err := payload.Resolve(t.Context(), f, headers, nil); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Resolve() of a path = %v, want a refusal", err)
	}
}

func TestFolder_ExpiresNothingWithinItsLifetime(t *testing.T) {
	t.Parallel()
	const lifetime = 10 * 24 * time.Hour
	f, dir := folder(t)
	old := func(key string, written time.Time) string {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(key))
		if err := os.Chtimes(path, written, written); err != nil {
			t.Fatal(err)
		}
		return path
	}
	first := old(put(t, f, "first", day), day)                       // of the last minute of its day
	again := old(put(t, f, "again", day), day.AddDate(0, 0, 3))      // a retry wrote it again
	later := old(put(t, f, "later", day.AddDate(0, 0, 30)), day)     // to be published in 30 days
	crashed := old(put(t, f, "crashed", day.AddDate(0, 0, -1)), day) // no event refers to it
	foreign := filepath.Join(dir, "payloads", "README")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		now  time.Time
		gone []string
		kept []string
	}{
		{"at the end of the lifetime of all but the first second", day.Add(lifetime - time.Second), nil, []string{first, again, later, crashed}},
		{"one day later", day.Add(lifetime + 24*time.Hour), []string{first, crashed}, []string{again, later}},
		{"after the retry's lifetime", day.Add(lifetime + 4*24*time.Hour), []string{again}, []string{later}},
		{"just before the scheduled one's end", day.AddDate(0, 0, 30).Add(lifetime), nil, []string{later}},
		{"after it", day.AddDate(0, 0, 31).Add(lifetime), []string{later}, []string{foreign}},
	} {
		n, err := f.Expire(t.Context(), step.now, lifetime)
		if err != nil || n != len(step.gone) {
			t.Errorf("%s: Expire() = %d, %v, want %d", step.name, n, err, len(step.gone))
		}
		for _, path := range step.kept {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
		}
		for _, path := range step.gone {
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s exists (%v)", step.name, path, err)
			}
		}
	}
	if _, err := f.Expire(t.Context(), day, time.Hour); err == nil {
		t.Error("Expire() accepts a lifetime of an hour")
	}
}
