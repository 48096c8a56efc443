package queue

import (
	"slices"
	"sync"
	"time"
)

// Keys gives the keys of a subscription to the queues of its partitions: at most one queue
// has a key at a time. It is safe for concurrent use; a queue calls it, and it calls only
// Start.Turn of other queues.
type Keys struct {
	mu   sync.Mutex
	keys map[string]keyState
}

// keyState is the state of a key that some queue has, waits for, or blocks.
type keyState struct {
	queue   *Queue // nil for none
	waiting []waitingQueue
	blocked bool // by an open dead letter
}

type waitingQueue struct {
	*Queue
	written time.Time // of its next message
}

// NewKeys returns the keys of a subscription.
func NewKeys() *Keys { return &Keys{keys: make(map[string]keyState)} }

// take gives a key to a queue whose next message was written at a time. If another queue has
// it, Start.Turn is called later. With yield a queue that has the key gives it to one whose
// next message is older.
func (k *Keys) take(key string, q *Queue, written time.Time, yield bool) bool {
	k.mu.Lock()
	s := k.keys[key]
	wait := s.queue != nil && s.queue != q
	if s.queue == q && yield {
		wait = slices.ContainsFunc(s.waiting, func(w waitingQueue) bool { return w.written.Before(written) })
	}
	if !wait {
		s.queue = q
		k.keys[key] = s
		k.mu.Unlock()
		return true
	}
	if !slices.ContainsFunc(s.waiting, func(w waitingQueue) bool { return w.Queue == q }) {
		s.waiting = append(s.waiting, waitingQueue{q, written})
	}
	var next *Queue
	if s.queue == q {
		next = s.pass()
	}
	k.keys[key] = s
	k.mu.Unlock()
	if next != nil {
		next.turn(key)
	}
	return false
}

// pass gives the key to the queue whose next message is the oldest, and returns it; nil for
// none.
func (s *keyState) pass() *Queue {
	s.queue = nil
	if len(s.waiting) == 0 {
		return nil
	}
	first := 0
	for i := range s.waiting {
		if s.waiting[i].written.Before(s.waiting[first].written) {
			first = i
		}
	}
	s.queue = s.waiting[first].Queue
	s.waiting = slices.Delete(s.waiting, first, first+1)
	return s.queue
}

// leave takes a key from a queue, which then neither has it nor waits for it.
func (k *Keys) leave(key string, q *Queue) {
	k.mu.Lock()
	s, ok := k.keys[key]
	if !ok {
		k.mu.Unlock()
		return
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(w waitingQueue) bool { return w.Queue == q })
	var next *Queue
	if s.queue == q {
		next = s.pass()
	}
	if s.queue == nil && !s.blocked {
		delete(k.keys, key)
	} else {
		k.keys[key] = s
	}
	k.mu.Unlock()
	if next != nil {
		next.turn(key)
	}
}

// Block adds an open dead letter of a key, with strict order.
func (k *Keys) Block(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.keys[key]
	s.blocked = true
	k.keys[key] = s
}

// BlockedKeys returns the keys that are blocked by dead letters.
func (k *Keys) BlockedKeys() (keys []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, s := range k.keys {
		if s.blocked {
			keys = append(keys, key)
		}
	}
	return keys
}

func (k *Keys) isBlocked(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys[key].blocked
}

// oldest returns the least time of the messages that wait in other queues; zero for none.
func (k *Keys) oldest(key string) (at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.keys[key].waiting {
		if at.IsZero() || w.written.Before(at) {
			at = w.written
		}
	}
	return at
}

// Free removes the block of a key: no dead letter of it is open. Queue.Turn then continues
// each queue.
func (k *Keys) Free(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.keys[key]
	if !ok {
		return
	}
	s.blocked = false
	if s.queue == nil && len(s.waiting) == 0 {
		delete(k.keys, key)
	} else {
		k.keys[key] = s
	}
}
