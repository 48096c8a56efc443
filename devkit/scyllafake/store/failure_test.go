package store

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// fullDisk is a file system that refuses writes while full is true.
func fullDisk(full *atomic.Bool) vfs.FS {
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.ENOSPC
		}
		return nil
	}))
}

// On a full disk every write that is under way or comes later returns an error, the
// store reports that once, and Close returns.
func TestApply_FullDisk(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 200_000} { // in the buffer of the log, and past memtables
		var full atomic.Bool
		failed := make(chan error, 2)
		s, err := Open(Options{Dir: "data", FS: fullDisk(&full), Failed: func(err error) { failed <- err }})
		if err != nil {
			t.Fatal(err)
		}
		tbl := kvTable(1)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i := 0; ; i++ {
					if i == 20 {
						full.Store(true)
					}
					m := rowMutation(tbl, "p", Row{Columns: []ColumnData{columnData(colA, live(1, strings.Repeat("x", size)))}})
					if err := s.Apply([]*Mutation{m}); err != nil {
						if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.ENOSPC) {
							t.Errorf("Apply() = %v, want %v", err, ErrFailed)
						}
						return
					}
				}
			})
		}
		ended := make(chan error)
		go func() {
			wg.Wait()
			ended <- s.Close()
		}()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Close() = %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("writers or Close() wait for ever")
		}
		if err := <-failed; !errors.Is(err, ErrFailed) || len(failed) > 0 {
			t.Errorf("Failed received %v, and %d more", err, len(failed))
		}
		if err := s.Err(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Err() = %v", err)
		}
	}
}

// Pebble panics if its log cannot be written; the write returns the error of the disk.
func TestGuarded_Panic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Store{}
		s.failure.failed = make(chan struct{})
		err := s.guardWrite(func() error {
			s.fail(syscall.ENOSPC)
			panic("the log cannot be written")
		})
		synctest.Wait() // for the goroutine of the write
		if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("guarded() = %v, want %v", err, ErrFailed)
		}
	})
}
