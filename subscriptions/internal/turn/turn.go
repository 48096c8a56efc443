// Package turn has the lock that is held during a request to the broker or the database.
package turn

// Turn is a lock that is held during requests. A goroutine that waits for it does not keep
// virtual time from passing, as one that waits for a sync.Mutex does. Its zero value cannot be
// used.
type Turn chan struct{}

// New returns a lock that is free.
func New() Turn { return make(Turn, 1) }

// Lock waits for the lock.
func (t Turn) Lock() { t <- struct{}{} }

// Unlock releases the lock.
func (t Turn) Unlock() { <-t }
