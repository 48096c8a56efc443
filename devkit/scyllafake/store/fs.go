package store

import "github.com/cockroachdb/pebble/v2/vfs"

// storeFS is a file system whose files are never forced to the disk. A commit that
// pebble believes synced has then been written, not synced: it survives the process and
// costs no disk flush. (pebble.NoSync is weaker: it returns while the write still waits
// in the process's own buffer.)
//
// It reports failed writes to the store, such as those on a full disk: pebble retries some of
// them forever and panics after others.
type storeFS struct {
	vfs.FS
	store *Store
}

func (fs storeFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	return fs.file(f, err)
}

func (fs storeFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.OpenReadWrite(name, c, opts...)
	return fs.file(f, err)
}

func (fs storeFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, c)
	return fs.file(f, err)
}

func (fs storeFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return storeFile{f, fs.store}, nil
}

// Unwrap gives pebble the underlying file system.
func (fs storeFS) Unwrap() vfs.FS { return fs.FS }

func (fs storeFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		fs.store.fail(err)
		return nil, err
	}
	return storeFile{f, fs.store}, nil
}

// storeFile is a file of a storeFS.
type storeFile struct {
	vfs.File
	store *Store
}

func (f storeFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	return n, f.check(err)
}

func (f storeFile) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(b, at)
	return n, f.check(err)
}

func (storeFile) Sync() error                { return nil }
func (storeFile) SyncData() error            { return nil }
func (storeFile) SyncTo(int64) (bool, error) { return false, nil }

// check reports the error of a write, which it returns.
func (f storeFile) check(err error) error {
	if err != nil {
		f.store.fail(err)
	}
	return err
}
