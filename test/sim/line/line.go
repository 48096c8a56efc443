// Package line lets processes of a simulation die at a message that they send.
package line

import (
	"context"
	"net"
	"sync"
)

// Line is a process's way to the database. When the process dies nothing that it
// sends goes anywhere, and nothing reaches it.
type Line struct {
	mu sync.Mutex
	// left is how many messages it sends before it dies; zero and less if it does not.
	left int
	// carried says that the last of them still arrives.
	carried bool
	dead    bool
	died    func()
}

// Arm lets the process die with its n-th message from now, which is carried to the
// database or not; with 0 it dies by Kill alone. died is called then, once, and must not use the line.
func (l *Line) Arm(n int, carried bool, died func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.carried, l.died = n, carried, died
}

// send says whether a message arrives.
func (l *Line) send() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return false
	}
	if l.died == nil {
		return true
	}
	if l.left--; l.left != 0 {
		return true
	}
	l.dead = true
	l.died()
	return l.carried
}

// Kill lets the process die now. What Arm says is done once.
func (l *Line) Kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return
	}
	l.dead = true
	if l.died != nil {
		l.died()
	}
}

// Dead tells whether the process has died.
func (l *Line) Dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// Dialer is a gocql.Dialer over a line.
type Dialer struct {
	*Line
	// Dial connects to the one node there is.
	Dial func(context.Context) (net.Conn, error)
}

// DialContext implements gocql.Dialer.
func (d Dialer) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	c, err := d.Dial(ctx)
	return &conn{Conn: c, line: d.Line}, err
}

// conn is a connection of a process. That of a dead one stays open, since the
// driver waits with locks held while it replaces one, and in a bubble time
// stands still while anything waits for a lock.
type conn struct {
	net.Conn
	line *Line
}

// Write sends a message, or loses it.
func (c *conn) Write(b []byte) (int, error) {
	if !c.line.send() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Read reads; a dead process reads nothing until its connection is closed.
func (c *conn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.line.Dead() {
			return n, err
		}
	}
}
