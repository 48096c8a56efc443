package store

import "github.com/cockroachdb/pebble/v2/vfs"

// lazyFS is a file system whose files are never forced to the disk. A commit
// that pebble believes synced has then been written, not synced: it survives
// the process and costs no disk flush. (pebble.NoSync is weaker: it returns
// while the write still waits in the process's own buffer.)
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

// Unwrap lets pebble find the file system beneath.
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
