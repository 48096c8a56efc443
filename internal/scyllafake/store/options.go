package store

import (
	"errors"
	"fmt"
	"time"
)

// Options configure a Store.
type Options struct {
	// Dir is the data directory; empty keeps everything in memory.
	Dir string
	// Fsync makes every Apply wait for the disk. Without it an acknowledged
	// write survives the death of the process (it has reached the operating
	// system) but not that of the machine.
	Fsync bool
	// Now is the clock that TTLs are read against; nil means time.Now.
	Now func() time.Time
	// Logf receives pebble's own messages; nil discards them.
	Logf func(format string, args ...any)
}

// ErrInUse says that another process, or another Store of this one, has the
// data directory open.
var ErrInUse = errors.New("data directory is in use")

// logger adapts Logf to pebble.
type logger struct {
	logf func(format string, args ...any)
}

func (l logger) Infof(format string, args ...any)  { l.print(format, args...) }
func (l logger) Errorf(format string, args ...any) { l.print(format, args...) }

// Fatalf is called where pebble cannot go on without breaking its promises;
// it must not return.
func (l logger) Fatalf(format string, args ...any) {
	l.print(format, args...)
	panic("store: " + fmt.Sprintf(format, args...))
}

func (l logger) print(format string, args ...any) {
	if l.logf != nil {
		l.logf(format, args...)
	}
}
