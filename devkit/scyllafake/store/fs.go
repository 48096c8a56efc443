package store

import "github.com/cockroachdb/pebble/v2/vfs"

// lazyFS is a file system whose files are never forced to the disk. A commit that
// pebble believes synced has then been written, not synced: it survives the process and
// costs no disk flush. (pebble.NoSync is weaker: it returns while the write still waits
// in the process's own buffer.)
type lazyFS struct{ vfs.FS }

func (fs lazyFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return lazy(fs.FS.Create(name, c))
}

func (fs lazyFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return lazy(fs.FS.OpenReadWrite(name, c, opts...))
}

func (fs lazyFS) OpenDir(name string) (vfs.File, error) { return lazy(fs.FS.OpenDir(name)) }

func (fs lazyFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return lazy(fs.FS.ReuseForWrite(oldname, newname, c))
}

// Unwrap gives pebble the underlying file system.
func (fs lazyFS) Unwrap() vfs.FS { return fs.FS }

type lazyFile struct{ vfs.File }

func lazy(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return lazyFile{f}, nil
}

func (lazyFile) Sync() error                { return nil }
func (lazyFile) SyncData() error            { return nil }
func (lazyFile) SyncTo(int64) (bool, error) { return false, nil }

// failingFS is a file system that reports failed writes to the store, such as those on a full disk.
// Pebble retries some of them forever and panics after others.
type failingFS struct {
	vfs.FS
	store *Store
}

func (fs failingFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	return fs.file(f, err)
}

func (fs failingFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.OpenReadWrite(name, c, opts...)
	return fs.file(f, err)
}

func (fs failingFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, c)
	return fs.file(f, err)
}

// Unwrap gives pebble the underlying file system.
func (fs failingFS) Unwrap() vfs.FS { return fs.FS }

func (fs failingFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		fs.store.fail(err)
		return nil, err
	}
	return failingFile{f, fs.store}, nil
}

// failingFile is a file of a failingFS.
type failingFile struct {
	vfs.File
	store *Store
}

func (f failingFile) check(err error) error {
	if err != nil {
		f.store.fail(err)
	}
	return err
}

func (f failingFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	return n, f.check(err)
}

func (f failingFile) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(b, at)
	return n, f.check(err)
}

func (f failingFile) Sync() error     { return f.check(f.File.Sync()) }
func (f failingFile) SyncData() error { return f.check(f.File.SyncData()) }

func (f failingFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.check(err)
}
