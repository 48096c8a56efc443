package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
)

// Bucket stores the objects of an archive. Keys are relative paths with slashes. It is
// safe for concurrent use.
type Bucket interface {
	// Write stores an object and replaces the one with its key. The object is complete and
	// durable when Write returns nil, and not visible before.
	Write(ctx context.Context, key string, content []byte, contentType string) error
	// Open returns the content of an object, which the caller closes. The error of a missing
	// object has fs.ErrNotExist in its chain.
	Open(ctx context.Context, key string) (io.ReadCloser, error)
	// Exists reports whether there is an object with the key.
	Exists(ctx context.Context, key string) (bool, error)
	// List returns the objects whose keys begin with prefix, in the order of their keys. The
	// last pair may have an error instead of an object.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Delete removes an object; nil if there is none.
	Delete(ctx context.Context, key string) error
	Close() error
}

// Object is an object of a Bucket.
type Object struct {
	Key     string
	ModTime time.Time
}

// schemes are the kinds of buckets beside folders.
var schemes = struct {
	sync.Mutex
	open map[string]func(ctx context.Context, bucketURL string) (Bucket, error)
}{open: make(map[string]func(context.Context, string) (Bucket, error))}

// Register makes Open use open for URLs with a scheme. Packages that link an object store
// call it when they are initialized.
func Register(scheme string, open func(ctx context.Context, bucketURL string) (Bucket, error)) {
	schemes.Lock()
	defer schemes.Unlock()
	schemes.open[scheme] = open
}

// CheckSupported returns an error if this program cannot open the archive at where, because its
// scheme is not registered. It connects to nothing.
func CheckSupported(where string) error {
	scheme, _, isURL := strings.Cut(where, "://")
	if !isURL || scheme == "file" {
		return nil
	}
	_, err := opener(scheme)
	return err
}

// opener returns the function that was registered for a scheme.
func opener(scheme string) (func(ctx context.Context, bucketURL string) (Bucket, error), error) {
	schemes.Lock()
	defer schemes.Unlock()
	if open := schemes.open[scheme]; open != nil {
		return open, nil
	}
	return nil, fmt.Errorf("this build does not contain %s://; outbox-cloud (make build-cloud) contains s3, gs and azblob", scheme)
}

func openBucket(ctx context.Context, bucketURL string) (Bucket, error) {
	scheme, _, _ := strings.Cut(bucketURL, "://")
	open, err := opener(scheme)
	if err != nil {
		return nil, err
	}
	return open(ctx, bucketURL)
}

// folder is a Bucket in the file system: a file for each object.
type folder struct{ dir string }

func (f *folder) path(key string) (string, error) {
	name := filepath.FromSlash(key)
	if !filepath.IsLocal(name) {
		return "", &fs.PathError{Op: "open", Path: key, Err: fs.ErrNotExist}
	}
	return filepath.Join(f.dir, name), nil
}

func (f *folder) Write(ctx context.Context, key string, content []byte, _ string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if _, err := f.path(key); err != nil {
		return err
	}
	return payload.WriteFile(f.dir, filepath.FromSlash(key), content)
}

func (f *folder) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	path, err := f.path(key)
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

func (f *folder) Exists(ctx context.Context, key string) (bool, error) {
	if err := context.Cause(ctx); err != nil {
		return false, err
	}
	path, err := f.path(key)
	if err == nil {
		_, err = os.Stat(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// List walks the folders in lexical order. It is the order of the keys, because the names of
// one level have the same length, or no common beginning.
func (f *folder) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		err := filepath.WalkDir(f.dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil {
				err = context.Cause(ctx)
			}
			if errors.Is(err, fs.ErrNotExist) && path != f.dir {
				return nil // it was removed just now
			}
			if err != nil || path == f.dir {
				return err
			}
			name, err := filepath.Rel(f.dir, path)
			if err != nil {
				return err
			}
			key := filepath.ToSlash(name)
			if entry.IsDir() {
				if !strings.HasPrefix(key+"/", prefix) && !strings.HasPrefix(prefix, key+"/") {
					return fs.SkipDir
				}
				return nil
			}
			if payload.Unfinished(entry.Name()) || !strings.HasPrefix(key, prefix) {
				return nil
			}
			info, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if !yield(Object{key, info.ModTime()}, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield(Object{}, err)
		}
	}
}

func (f *folder) Delete(ctx context.Context, key string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	path, err := f.path(key)
	if err == nil {
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (f *folder) Close() error { return nil }
