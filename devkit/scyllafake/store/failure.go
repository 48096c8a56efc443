package store

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
)

// failure is the first write that the disk refused.
type failure struct {
	err    atomic.Pointer[error] // nil while there is none
	once   sync.Once
	notify func(error)
}

// fail records that a write failed. Only the first call counts.
func (s *Store) fail(cause error) {
	s.failure.once.Do(func() {
		err := fmt.Errorf("%w: %w", ErrFailed, cause)
		s.failure.err.Store(&err)
		if s.failure.notify != nil {
			go s.failure.notify(err) // pebble may hold its locks here
		}
	})
}

// Err returns the error after which the store takes no more writes; it wraps ErrFailed.
// It is nil while the store works.
func (s *Store) Err() error {
	if err := s.failure.err.Load(); err != nil {
		return *err
	}
	return nil
}

// guarded makes one write. Once the disk has refused a write every further one fails
// before it reaches pebble, which may hold its locks forever.
func (s *Store) guarded(write func() error) (err error) {
	if err := s.Err(); err != nil {
		return err
	}
	defer func() {
		p := recover()
		if failed := s.Err(); failed != nil {
			err = failed
		} else if p != nil {
			panic(p)
		}
	}()
	return write()
}

// inGuarded reports whether the calling goroutine is inside of guarded.
func inGuarded() bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "store.(*Store).guarded") {
			return true
		}
		if !more {
			return false
		}
	}
}
