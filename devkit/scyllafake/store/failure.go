package store

import (
	"fmt"
	"sync"
)

// failure is the first write that the disk refused.
type failure struct {
	once   sync.Once
	failed chan struct{} // closed when err is set
	err    error
	notify func(error)
}

// fail records that a write failed. Only the first call counts.
func (s *Store) fail(cause error) {
	s.failure.once.Do(func() {
		s.failure.err = fmt.Errorf("%w: %w", ErrFailed, cause)
		close(s.failure.failed)
		if s.failure.notify != nil {
			go s.failure.notify(s.failure.err) // pebble may hold its locks here
		}
	})
}

// Err returns the error after which the store takes no more writes; it wraps ErrFailed.
// It is nil while the store works.
func (s *Store) Err() error {
	select {
	case <-s.failure.failed:
		return s.failure.err
	default:
		return nil
	}
}

// guardWrite makes one write, in a goroutine of its own. Once the disk has refused a write,
// every write fails: a later one before it reaches pebble, and one in progress is abandoned,
// because pebble may hold locks that nobody releases. What an abandoned write uses must not
// be used again.
func (s *Store) guardWrite(write func() error) error {
	if err := s.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil && s.Err() == nil { // pebble panics if its log cannot be written
				panic(p)
			}
		}()
		done <- write()
	}()
	select {
	case err := <-done:
		if failed := s.Err(); failed != nil {
			return failed
		}
		return err
	case <-s.failure.failed:
		return s.failure.err
	}
}
