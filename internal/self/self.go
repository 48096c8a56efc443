// Package self names this process: in claims and leases, which tell processes
// apart by it, and in rows and logs, for people.
package self

import (
	"crypto/rand"
	"fmt"
	"os"
	"sync"
)

// Host is the name of the machine, "unknown" if the system does not tell it. It is
// asked once.
var Host = sync.OnceValue(func() string {
	h, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return h
})

// Process is the host and the id of the process. In containers another one may
// have the same.
func Process() string { return fmt.Sprintf("%s/%d", Host(), os.Getpid()) }

// Unique is Process and what no other process and no other call has.
func Unique() string { return Process() + "/" + rand.Text()[:10] }
