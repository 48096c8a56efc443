package later

import (
	"context"
	"net"
	"sync"
)

// line is a process's way to the database. When the process dies nothing that it
// sends goes anywhere, and nothing reaches it.
type line struct {
	mu sync.Mutex
	// left is how many messages it sends before it dies; negative if it does not.
	left int
	// carried says that the last of them still arrives.
	carried bool
	dead    bool
	died    func()
}

// arm lets the process die with its n-th message from now.
func (l *line) arm(n int, carried bool, died func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.carried, l.died = n, carried, died
}

// send says whether a message arrives.
func (l *line) send() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return false
	}
	if l.died == nil {
		return true
	}
	if l.left--; l.left > 0 {
		return true
	}
	l.dead = true
	l.died()
	return l.carried
}

func (l *line) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// dialer is a gocql.Dialer over a line.
type dialer struct {
	*line
	dial func(context.Context) (net.Conn, error)
}

// DialContext connects to the one node there is.
func (d dialer) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	c, err := d.dial(ctx)
	return &conn{Conn: c, line: d.line}, err
}

// conn is a connection of a process. That of a dead one stays open, since the
// driver waits with locks held while it replaces one, and in a bubble time
// stands still while anything waits for a lock.
type conn struct {
	net.Conn
	line *line
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
		if err != nil || !c.line.isDead() {
			return n, err
		}
	}
}
