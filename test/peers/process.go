package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/ports"
)

// stopTimeout bounds the time from SIGTERM to the end of a peer, on a busy
// machine.
const stopTimeout = 3 * time.Minute

// Process is a running peer. It is safe for concurrent use.
type Process struct {
	// Addr is where clients connect, "127.0.0.1:port".
	Addr string
	// Dir holds its data and its log.
	Dir string

	name      string
	temporary bool
	cmd       *exec.Cmd
	exited    chan struct{} // closed when the process has ended
	once      sync.Once
}

// Stop ends the peer with SIGTERM, and with SIGKILL after stopTimeout.
func (p *Process) Stop() error { return p.end(syscall.SIGTERM) }

// Kill ends the peer with SIGKILL, like a crash. Another one can start on its
// Dir.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL) }

func (p *Process) end(sig syscall.Signal) error {
	var err error
	p.once.Do(func() {
		if e := p.cmd.Process.Signal(sig); e != nil && !errors.Is(e, os.ErrProcessDone) {
			err = fmt.Errorf("stop %s: %w", p.name, e)
		}
		select {
		case <-p.exited:
		case <-time.After(stopTimeout):
			err = errors.Join(err, fmt.Errorf("%s did not end within %v of %v", p.name, stopTimeout, sig))
			_ = p.cmd.Process.Kill()
			<-p.exited
		}
		if p.temporary {
			err = errors.Join(err, os.RemoveAll(p.Dir))
		}
	})
	return err
}

// java starts a JVM and waits until it accepts connections.
func java(ctx context.Context, s *setup, args ...string) (*Process, error) {
	logPath := filepath.Join(s.Dir, "log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &Process{
		Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)), Dir: s.Dir,
		name: s.name, temporary: s.temporary, exited: make(chan struct{}),
	}
	// The quick compiler halves the start time, and no peer runs for long.
	p.cmd = exec.Command("java", append([]string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms" + s.Heap, "-Xmx" + s.Heap}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = dieWithParent()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	go func() {
		_ = p.cmd.Wait() // the log contains the reason
		close(p.exited)
	}()
	if err := p.await(ctx, s.StartTimeout); err != nil {
		err = fmt.Errorf("%w; the end of its log:\n%s", err, tail(logPath, 20))
		return nil, errors.Join(err, p.Kill())
	}
	return p, nil
}

// await returns when the peer accepts a connection.
func (p *Process) await(ctx context.Context, timeout time.Duration) error {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return fmt.Errorf("%s did not accept connections within %v", p.name, timeout)
		case <-p.exited:
			return fmt.Errorf("%s ended while it started", p.name)
		case <-tick.C:
			if c, err := net.DialTimeout("tcp", p.Addr, time.Second); err == nil {
				return c.Close()
			}
		}
	}
}

// tail returns the last lines of a file.
func tail(path string, lines int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// freePorts returns n different free ports, which stay free while a peer that
// has one is restarted.
func freePorts(n int) ([]int, error) {
	addrs, err := ports.Take(n)
	if err != nil {
		return nil, err
	}
	out := make([]int, n)
	for i, addr := range addrs {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		if out[i], err = strconv.Atoi(port); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// directory sets cfg.Dir and reports whether it is a temporary one.
func directory(name string, cfg *Config) (temporary bool, err error) {
	if cfg.Dir != "" {
		if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
			return false, err
		}
		return false, os.MkdirAll(cfg.Dir, 0o755)
	}
	cfg.Dir, err = os.MkdirTemp("", "peer-"+name+"-")
	return true, err
}
