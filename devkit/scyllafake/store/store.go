// Package store keeps the rows of a scyllafake node in pebble: cells with timestamps,
// TTLs and tombstones, reconciled as ScyllaDB reconciles them.
//
// Writes are blind: Apply appends mutations and reads merge them. All mutations of one
// Apply become durable and visible together or not at all.
package store

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
)

// Store is an open database. It is safe for concurrent use.
type Store struct {
	db    *pebble.DB
	lock  *pebble.Lock
	clock Clock
	// write contains the options of commits: synced, or not where there is no log.
	write *pebble.WriteOptions

	// rewrite is held shared by Apply, and exclusively while records are read and then
	// replaced or removed, so that no write in between is lost.
	rewrite sync.RWMutex

	columns  sync.Map // StoreID -> *tableColumns
	encoders sync.Pool
	readers  sync.Pool
	failure  failure
	// rewrites counts records written back as one, for tests.
	rewrites atomic.Int64
}

type tableColumns struct {
	table *catalog.Table
	infos []columnInfo
}

const (
	memTableSize = 16 << 20
	cacheSize    = 64 << 20
)

// Open opens or creates a store. If another process, or another Store of this one, has
// the directory open, the error wraps ErrInUse.
func Open(o Options) (*Store, error) {
	if o.Dir == "" {
		return open(o, vfs.NewMem(), "", false)
	}
	fs := o.FS
	if fs == nil {
		fs = vfs.Default
	}
	return open(o, fs, o.Dir, true)
}

// open opens a store on fs, with a write-ahead log if durable is set.
func open(o Options, fs vfs.FS, dir string, durable bool) (*Store, error) {
	s := &Store{clock: o.Clock, write: pebble.NoSync}
	s.failure.failed, s.failure.notify = make(chan struct{}), o.Failed
	if s.clock == nil {
		s.clock = HostClock{}
	}
	if durable {
		fs = storeFS{fs, s}
		s.write = pebble.Sync
	}
	s.encoders.New = func() any { return new(encoder) }
	s.readers.New = func() any { return new(buffers) }

	limit := max(1, runtime.GOMAXPROCS(0)/4)
	cache := pebble.NewCache(cacheSize)
	defer cache.Unref() // the database holds its own reference
	po := &pebble.Options{
		FS:                          fs,
		Cache:                       cache,
		DisableWAL:                  !durable,
		FormatMajorVersion:          pebble.FormatNewest,
		Logger:                      logger{s},
		Merger:                      newMerger(),
		MemTableSize:                memTableSize,
		MemTableStopWritesThreshold: 4,
		CompactionConcurrencyRange:  func() (int, int) { return limit, limit },
	}
	po.Experimental.CompactionScheduler = newCompactions(limit)
	for i := range po.Levels {
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	lock, err := lockDir(dir, fs)
	if err != nil {
		return nil, fmt.Errorf("open store in %q: %w", dir, err)
	}
	po.Lock = lock
	var db *pebble.DB
	err = s.guardWrite(func() (err error) {
		db, err = pebble.Open(dir, po)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open store in %q: %w", dir, errors.Join(err, lock.Close()))
	}
	s.db, s.lock = db, lock
	return s, nil
}

// lockDir locks the directory for this store.
func lockDir(dir string, fs vfs.FS) (*pebble.Lock, error) {
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := pebble.LockDirectory(dir, fs)
	// fcntl(2) returns EAGAIN when another process has the lock. If this process has
	// it, pebble itself fails without an error number.
	var errno syscall.Errno
	if err != nil && (!errors.As(err, &errno) || errno == syscall.EAGAIN) {
		return nil, fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return lock, err
}

// Close flushes and closes the store; no other call may be in progress. A store whose
// disk refused a write is abandoned: pebble would wait for its own locks.
func (s *Store) Close() error {
	err := s.guardWrite(s.db.Close)
	if errors.Is(err, ErrFailed) {
		err = nil // Err and Options.Failed report it
	}
	if err := errors.Join(err, s.lock.Close()); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// unixNow returns the current second, for expiry.
func (s *Store) unixNow() int64 { return s.clock.Now().Unix() }

// columnInfos returns the column infos of t. They are derived once for each version of
// the table.
func (s *Store) columnInfos(t *catalog.Table) []columnInfo {
	if v, ok := s.columns.Load(t.StoreID); ok {
		if tc := v.(*tableColumns); tc.table == t {
			return tc.infos
		}
	}
	tc := &tableColumns{t, columnInfos(t)}
	s.columns.Store(t.StoreID, tc)
	return tc.infos
}
