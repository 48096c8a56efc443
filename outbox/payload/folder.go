package payload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Folder is a Store in a folder, which all writers and consumers mount. A payload
// becomes visible completely or not at all. It is safe for concurrent use, also by
// several processes.
type Folder struct{ dir string }

// NewFolder returns a store in dir, and creates the folder if it is missing.
func NewFolder(dir string) (*Folder, error) {
	if dir == "" {
		return nil, errors.New("open payload folder: its name is empty: pass the folder that writers and consumers mount")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open payload folder: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, Prefix), 0o750); err != nil {
		return nil, fmt.Errorf("open payload folder %s: %w", dir, err)
	}
	return &Folder{dir: dir}, nil
}

// errZeroFolder reports a Folder that NewFolder has not made.
var errZeroFolder = errors.New("the payload Folder is its zero value: use NewFolder")

// usable returns the error of a Folder that NewFolder has not made.
func (f *Folder) usable() error {
	if f == nil || f.dir == "" {
		return errZeroFolder
	}
	return nil
}

// Put implements Store. It syncs the file and its folders before it returns nil.
func (f *Folder) Put(ctx context.Context, key string, content []byte) error {
	if err := f.usable(); err != nil {
		return err
	}
	if _, err := Parse(key); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	// A repetition replaces the file, so that its lifetime begins again.
	return WriteFile(f.dir, filepath.FromSlash(key), content)
}

// unfinished begins the names of files that are being written.
const unfinished = "unfinished-"

// Unfinished reports whether the base name of a file is that of one which WriteFile has not
// finished, or never will because its process was killed.
func Unfinished(base string) bool { return strings.HasPrefix(base, unfinished) }

// WriteFile writes a file below the folder dir, and replaces the one with its name, a local path. The file is complete and durable when WriteFile returns nil, with
// the folders that lead to it, and not visible before. It is safe for concurrent use, also
// by several processes.
func WriteFile(dir, name string, content []byte) error {
	dir, path := filepath.Clean(dir), filepath.Join(dir, name)
	parent := filepath.Dir(path)
	if !filepath.IsLocal(name) || path == dir {
		return fmt.Errorf("write file %q below %s: its name is empty or leads out of the folder", name, dir)
	}
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return err
	}
	file, err := os.CreateTemp(parent, unfinished+"*")
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
	for ; ; parent = filepath.Dir(parent) {
		if err := syncDir(parent); err != nil {
			return fmt.Errorf("sync %s: %w", parent, err)
		}
		if parent == dir {
			return nil
		}
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Get implements Store.
func (f *Folder) Get(ctx context.Context, key string) (content []byte, err error) {
	if err := f.usable(); err != nil {
		return nil, err
	}
	r, err := Parse(key)
	if err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	file, err := os.Open(filepath.Join(f.dir, filepath.FromSlash(key)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s: its lifetime has ended, or this is not the folder of the writer", ErrNotFound, f.dir)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return io.ReadAll(io.LimitReader(file, r.Bytes+1))
}

// Expire removes the payloads whose day, and whose last write, are more than lifetime
// before now, and returns their number. It also removes what writers that crashed have
// left, and the payloads of transactions that failed. Of a lifetime below a day it
// returns an error. lifetime has to cover every copy of an event: its row, the
// retention of its topic, its dead letter, and consumers that start over.
func (f *Folder) Expire(ctx context.Context, now time.Time, lifetime time.Duration) (n int, err error) {
	if err := f.usable(); err != nil {
		return 0, err
	}
	if lifetime < 24*time.Hour {
		return 0, fmt.Errorf("expire payloads of %s: lifetime %s: use at least a day, and at least as long as an event may be read", f.dir, lifetime)
	}
	before := now.Add(-lifetime)
	days, err := os.ReadDir(filepath.Join(f.dir, Prefix))
	if err != nil {
		return 0, fmt.Errorf("expire payloads: %w", err)
	}
	for _, d := range days {
		day, err := time.Parse(dayFormat, d.Name())
		if err != nil || day.AddDate(0, 0, 1).After(before) { // its last events are of its end
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return n, err
		}
		removed, err := expireDay(filepath.Join(f.dir, Prefix, d.Name()), before)
		n += removed
		if err != nil {
			return n, fmt.Errorf("expire payloads: %w", err)
		}
	}
	return n, nil
}

// expireDay removes the files that were last written before a time, and the folder if
// none remains.
func expireDay(dir string, before time.Time) (n int, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		info, err := file.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // by another process
		}
		if err != nil {
			return n, err
		}
		if info.ModTime().After(before) {
			continue // written again later, such as by a retry
		}
		if err := os.Remove(filepath.Join(dir, file.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, err
		}
		n++
	}
	if n == len(files) {
		_ = os.Remove(dir) // it may have a new file
	}
	return n, nil
}
