// Package self names this process: in claims and leases, which distinguish processes by
// it, and in rows and logs, for people.
package self

import (
	"crypto/rand"
	"fmt"
	"os"
	"sync"
)

// Host returns the name of the machine, "unknown" if the system does not return one. It
// is read once.
var Host = sync.OnceValue(func() string {
	h, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return h
})

// Process returns the host and the id of the process. In containers another process may
// have the same.
func Process() string { return fmt.Sprintf("%s/%d", Host(), os.Getpid()) }

// Unique returns Process and a random part, different in every process and every call.
func Unique() string { return Process() + "/" + rand.Text()[:10] }
