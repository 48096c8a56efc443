// Package ports allocates ports for processes that tests start, kill, and
// restart on the same port.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports are below the ephemeral ranges of Linux, macOS and the BSDs (from
// 32768 on): while a process is down, nothing else uses its port.
const (
	first = 10_000
	count = 20_000
)

var taken struct {
	sync.Mutex
	kept []net.PacketConn
}

// Take returns n unused addresses on loopback. While this process runs, no
// other call returns them, also in other processes: a UDP socket of the same
// number, which no test needs, marks a port as taken. It is safe for concurrent
// use.
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

// take acquires the UDP port of addr, unless it or the TCP port is in use.
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
