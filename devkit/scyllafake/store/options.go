package store

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options configure a Store.
type Options struct {
	// Dir is the data directory; empty keeps everything in memory.
	Dir string
	// FS is the file system of Dir; nil is the operating system's.
	FS vfs.FS
	// Clock is the clock for TTLs; nil means that of the host.
	Clock Clock
	// Failed is called once, in a goroutine of its own, when the disk refused a write:
	// the store takes no more writes. The error wraps ErrFailed. Nil disables the call.
	Failed func(error)
}

// Clock is the wall clock of a node. It is safe for concurrent use, and may be set back.
type Clock interface {
	// Now returns the current time.
	Now() time.Time
}

// HostClock is the clock of this host.
type HostClock struct{}

// Now returns time.Now.
func (HostClock) Now() time.Time { return time.Now() }

// ErrFailed means that the disk refused a write, for example because it is full.
var ErrFailed = errors.New("the disk refused a write")

// ErrInUse means that another process, or another Store of this one, has the data
// directory open.
var ErrInUse = errors.New("data directory is in use")

// logger discards pebble's messages.
type logger struct{ s *Store }

func (l logger) Infof(string, ...any)  {}
func (l logger) Errorf(string, ...any) {}

// Fatalf is called where pebble cannot continue without breaking its promises, in some
// places with its locks held; it must not return. It ends the goroutine, which is one of
// pebble's own or that of a guarded write; a panic would end the process with a stack trace
// instead of an exit status.
func (l logger) Fatalf(format string, args ...any) {
	l.s.fail(fmt.Errorf(format, args...))
	runtime.Goexit()
}
