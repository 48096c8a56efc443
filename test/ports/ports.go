// Package ports picks ports for processes that tests start, kill, and start again
// where they were.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports given out lie below those that Linux, macOS and the BSDs choose by
// themselves for a connection or for a listener on port 0 (from 32768 on): while a
// process is away, nothing else comes to be where it was.
const (
	first = 10_000
	count = 20_000
)

var taken struct {
	sync.Mutex
	kept []net.PacketConn
}

// Take returns n addresses on loopback that nobody listens on. No other call is
// given them while this process lives, in other processes neither: a UDP socket of
// the same number, which nobody else needs, says that a port is taken. It is safe for
// concurrent use.
func Take(n int) ([]string, error) {
	taken.Lock()
	defer taken.Unlock()
	var out []string
	var errs []error
	for len(out) < n {
		if len(errs) == 100 {
			return nil, fmt.Errorf("find a free port from %d to %d: %w", first, first+count-1, errors.Join(errs...))
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.IntN(count)))
		if err := take(addr); err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, addr)
	}
	return out, nil
}

// take keeps the UDP port of addr, unless somebody has it or listens on the TCP port.
func take(addr string) error {
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	taken.kept = append(taken.kept, c)
	return l.Close()
}
