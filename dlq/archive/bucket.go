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

func openBucket(ctx context.Context, bucketURL string) (Bucket, error) {
	scheme, _, _ := strings.Cut(bucketURL, "://")
	schemes.Lock()
	open := schemes.open[scheme]
	schemes.Unlock()
	if open == nil {
		return nil, fmt.Errorf("this build does not contain %s://; make build-cloud links s3, gs and azblob (-tags cloud)", scheme)
	}
	return open(ctx, bucketURL)
}

// folder is a Bucket in the file system: a file for each object.
type folder struct{ dir string }

// temporary is the name of files that are being written.
const temporary = "unfinished-*"

func (f *folder) path(key string) (string, error) {
	name := filepath.FromSlash(key)
	if !filepath.IsLocal(name) {
		return "", &fs.PathError{Op: "open", Path: key, Err: fs.ErrNotExist}
	}
	return filepath.Join(f.dir, name), nil
}

// Write syncs the file and the folders that lead to it, which may be new.
func (f *folder) Write(ctx context.Context, key string, content []byte, _ string) (err error) {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	path, err := f.path(key)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, temporary)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	for ; ; dir = filepath.Dir(dir) {
		if err := syncFolder(dir); err != nil {
			return fmt.Errorf("sync %s: %w", dir, err)
		}
		if dir == f.dir {
			return nil
		}
	}
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
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
			unfinished, _ := filepath.Match(temporary, entry.Name())
			if unfinished || !strings.HasPrefix(key, prefix) {
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
