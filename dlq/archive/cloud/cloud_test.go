//go:build cloud

package cloud

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob/memblob"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/test/clouds/cloudtest"
)

// each runs f with a bucket in memory and with one of each service.
func each(t *testing.T, f func(t *testing.T, b archive.Bucket)) {
	t.Helper()
	t.Run("mem", func(t *testing.T) {
		t.Parallel()
		b := &bucket{memblob.OpenBucket(nil), requestTimeout}
		t.Cleanup(func() { _ = b.Close() })
		f(t, b)
	})
	for _, scheme := range []string{"s3", "gs", "azblob"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			url := cloudtest.URL(t, scheme, "contract")
			if err := archive.Supported(url); err != nil {
				t.Fatal(err)
			}
			b, err := open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
			f(t, b)
		})
	}
}

func content(t *testing.T, b archive.Bucket, key string) []byte {
	t.Helper()
	r, err := b.Open(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return got
}

func keys(t *testing.T, b archive.Bucket, prefix string) (keys []string) {
	t.Helper()
	for o, err := range b.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		if age := time.Since(o.ModTime); age < -time.Minute || age > time.Hour {
			t.Errorf("%s was written %s ago", o.Key, age)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

func TestBucket_ReturnsWhatWasWritten(t *testing.T) {
	t.Parallel()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	each(t, func(t *testing.T, b archive.Bucket) {
		for _, tt := range []struct {
			name    string
			content []byte
		}{
			{"text", []byte("text")},
			{"shorter", []byte("t")},
			{"empty", nil},
			{"every byte", all},
			{"compressed", []byte("\x28\xb5\x2f\xfd\x04\x00\x09\x00\x00abc\r\n")}, // no service may decompress it
			{"5 MB", bytes.Repeat(all, 5<<20/256)},
			{"20 MB, in several parts", bytes.Repeat(all, 20<<20/256)},
		} {
			const key = "contents/2027-02-14/3-ba7816bf" // each one replaces the one before
			if err := b.Write(t.Context(), key, tt.content, "application/zstd"); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			if got := content(t, b, key); !bytes.Equal(got, tt.content) {
				t.Errorf("%s: %d bytes return, want the %d that were written", tt.name, len(got), len(tt.content))
			}
		}
	})
}

func TestBucket_ListsEveryPageInOrder(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b archive.Bucket) {
		const n = 1005 // a page of the services has 1,000
		var want []string
		var g errgroup.Group
		g.SetLimit(32)
		for i := range n {
			key := fmt.Sprintf("2list/%02d/%04d.jsonl.zst", i%7, i)
			want = append(want, key)
			g.Go(func() error { return b.Write(t.Context(), key, []byte(key), "text/plain") })
		}
		for _, key := range []string{"2lisu", "2lis", "1list/00/0000"} {
			g.Go(func() error { return b.Write(t.Context(), key, nil, "text/plain") })
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		slices.Sort(want)
		if got := keys(t, b, "2list"); !slices.Equal(got, want) {
			t.Errorf("%d objects, want %d in the order of their keys", len(got), n)
		}
		if got := keys(t, b, "2list/03/"); len(got) != n/7+1 {
			t.Errorf("%d objects of a folder, want %d", len(got), n/7+1)
		}
		if got := keys(t, b, "none"); len(got) != 0 {
			t.Errorf("objects %q, want none", got)
		}
		for range b.List(t.Context(), "2list") {
			break
		}
	})
}

func TestBucket_HasNoMissingObject(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b archive.Bucket) {
		has := func(want bool) {
			t.Helper()
			if ok, err := b.Exists(t.Context(), "missing/x"); ok != want || err != nil {
				t.Errorf("Exists() = %t, %v, want %t", ok, err, want)
			}
		}
		has(false)
		if err := b.Write(t.Context(), "missing/x", []byte("x"), "text/plain"); err != nil {
			t.Fatal(err)
		}
		has(true)
		for range 2 {
			if err := b.Delete(t.Context(), "missing/x"); err != nil {
				t.Errorf("Delete() error = %v, also for a missing object want nil", err)
			}
		}
		has(false)
		if _, err := b.Open(t.Context(), "missing/x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open() of a missing object: %v, want fs.ErrNotExist", err)
		}
	})
}

// The archive keeps its objects and manifests in each service.
func TestBucket_OfAnArchive(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b archive.Bucket) {
		a := archive.New(b)
		if err := a.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		m, err := a.Write(t.Context(), []archive.Record{{EventID: "one", Status: dlq.Resolved}, {EventID: "two", Status: dlq.Failed}}, "test")
		if err != nil {
			t.Fatal(err)
		}
		var listed []string
		list := func() {
			t.Helper()
			listed = nil
			if err := a.List(t.Context(), time.Time{}, func(m archive.Manifest) error {
				listed = append(listed, m.Events...)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if list(); !slices.Equal(listed, []string{"one", "two"}) {
			t.Errorf("the archive has %q", listed)
		}
		n := 0
		if err := a.Records(t.Context(), m.Object, func(archive.Record) error { n++; return nil }); n != 2 || err != nil {
			t.Errorf("%d records, %v", n, err)
		}
		if err := a.Remove(t.Context(), m.Object); err != nil {
			t.Fatal(err)
		}
		if list(); len(listed) != 0 {
			t.Errorf("the archive has %q after Remove()", listed)
		}
	})
}

// A service that refuses connections, or accepts them and does not answer, is an error of
// every request within its timeout.
func TestBucket_OutageIsAnErrorInTime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts by the kernel's backlog
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := refusing.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "x")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	if os.Getenv("AZURE_STORAGE_KEY") == "" { // the SDK reads it once
		t.Setenv("AZURE_STORAGE_ACCOUNT", "x")
		t.Setenv("AZURE_STORAGE_KEY", "eA==")
	}
	for name, addr := range map[string]string{"silent": l.Addr().String(), "refusing": refusing.Addr().String()} {
		t.Setenv("STORAGE_EMULATOR_HOST", addr)
		for _, url := range []string{
			"s3://b?region=us-east-1&use_path_style=true&endpoint=http://" + addr, "gs://b", "azblob://b?localemu=true&protocol=http&domain=" + addr,
		} {
			opened, err := open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			b := opened.(*bucket)
			b.timeout = 500 * time.Millisecond
			for request, f := range map[string]func(context.Context) error{
				"write":  func(ctx context.Context) error { return b.Write(ctx, "x", []byte("x"), "text/plain") },
				"open":   func(ctx context.Context) error { _, err := b.Open(ctx, "x"); return err },
				"exists": func(ctx context.Context) error { _, err := b.Exists(ctx, "x"); return err },
				"delete": func(ctx context.Context) error { return b.Delete(ctx, "x") },
				"list": func(ctx context.Context) error {
					for _, err := range b.List(ctx, "x") {
						return err
					}
					return nil
				},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				err := f(ctx)
				if err == nil || errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil {
					t.Errorf("%s, %s: %s = %v, and %v", name, url, request, err, ctx.Err())
				}
				cancel()
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A key that the service refuses is an error that names the reason and not the key. The SDKs
// read their keys once, so another process has the wrong one.
func TestBucket_OfAWrongKey(t *testing.T) {
	t.Parallel()
	const child = "CLOUD_WRONG_KEY"
	if os.Getenv(child) == "" {
		cloudtest.URL(t, "s3", "contract") // skips here under the same conditions as the other process
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBucket_OfAWrongKey$")
		c.Env = append(os.Environ(), child+"=1", "AWS_SECRET_ACCESS_KEY=canary", "AZURE_STORAGE_KEY=canary==")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	for scheme, reason := range map[string]string{"s3": "SignatureDoesNotMatch", "azblob": "AuthorizationFailure"} {
		b, err := open(t.Context(), cloudtest.URL(t, scheme, "contract"))
		if err != nil {
			t.Fatal(err)
		}
		err = archive.New(b).Check(t.Context())
		if err == nil || !strings.Contains(err.Error(), reason) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want %s", scheme, err, reason)
		}
	}
}
