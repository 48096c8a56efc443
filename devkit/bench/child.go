package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// childPatience limits the start of a process, and its end after SIGTERM.
const childPatience = 60 * time.Second

// Child is a command of this program in a process of its own.
type Child struct {
	// Started is the time of its start.
	Started time.Time

	name  string
	to    io.Writer
	cmd   *exec.Cmd
	usage *usage

	mu     sync.Mutex
	log    []string // the last lines of its log
	ready  map[string]any
	attrs  map[string]string // of ready, the ones that Ready names
	exited chan struct{}
	err    error
}

// keptLines is the number of lines of a child's log that are kept to explain a failure.
const keptLines = 20

// Program defines how this program is started again.
type Program struct {
	// Env is its environment.
	Env []string
	// Log receives its log, line by line; nil for nobody.
	Log io.Writer
}

// Ready is the log line by which a child reports that it is ready.
type Ready struct {
	// Message is its message, Attrs the keys of the attributes that Attr returns.
	Message string
	Attrs   []string
}

// read returns the attributes of a line that r names. The error names the first key that
// the line has not, as after a rename in the program: an address would be empty otherwise.
func (r Ready) read(line map[string]any) (map[string]string, error) {
	out := make(map[string]string, len(r.Attrs))
	for _, key := range r.Attrs {
		s, ok := line[key].(string)
		if !ok {
			return nil, fmt.Errorf("its log line %q has no text %q", r.Message, key)
		}
		out[key] = s
	}
	return out, nil
}

// Start starts the program with args, which must make it log as JSON, and waits for the
// log line ready, whose attributes Attr returns. A line without one of them is an error.
func (p Program) Start(name string, ready Ready, args ...string) (*Child, error) {
	c, err := p.start(name, ready.Message, args...)
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(childPatience)
	for {
		c.mu.Lock()
		is := c.ready != nil
		c.mu.Unlock()
		if is {
			if c.attrs, err = ready.read(c.ready); err != nil {
				c.Kill()
				return nil, fmt.Errorf("start %s: %w", name, err)
			}
			return c, nil
		}
		select {
		case <-c.exited:
			return nil, fmt.Errorf("%s ended before it was ready: %w\n%s", name, c.err, c.lastLines())
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(end) {
			c.Kill()
			return nil, fmt.Errorf("%s was not ready after %s\n%s", name, childPatience, c.lastLines())
		}
	}
}

func (p Program) start(name, ready string, args ...string) (*Child, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c := &Child{name: name, to: p.Log, cmd: exec.Command(path, args...), exited: make(chan struct{})}
	c.cmd.Env = p.Env
	c.cmd.SysProcAttr = dieWithParent()
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.Started = time.Now()
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.usage = startUsage(c.cmd.Process.Pid)
	go func() {
		c.follow(stderr, ready)
		c.err = c.cmd.Wait()
		c.usage.end()
		close(c.exited)
	}()
	return c, nil
}

// follow reads the log to its end.
func (c *Child) follow(r io.Reader, ready string) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if c.to != nil {
			fmt.Fprintf(c.to, "%s: %s\n", c.name, lines.Bytes())
		}
		c.mu.Lock()
		c.log = append(c.log, lines.Text())
		if len(c.log) > keptLines {
			c.log = c.log[1:]
		}
		if c.ready == nil {
			var line map[string]any
			if json.Unmarshal(lines.Bytes(), &line) == nil && line["msg"] == ready {
				c.ready = line
			}
		}
		c.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, r) // a line that was too long must not block the child
}

func (c *Child) lastLines() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.log, "\n")
}

// Attr returns an attribute of the line that reported the child ready. It panics if the
// Ready of its start does not name the key.
func (c *Child) Attr(key string) string {
	s, ok := c.attrs[key]
	if !ok {
		panic(fmt.Sprintf("bench: the start of %s does not name the attribute %q", c.name, key))
	}
	return s
}

// Usage returns the resources that the process has used so far.
func (c *Child) Usage() Usage { return c.usage.now() }

// UsageAtStart returns the usage at its start: none.
func (c *Child) UsageAtStart() Usage { return Usage{At: c.Started} }

// Kill ends the process as a crash would.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill()
	<-c.exited
}

// Stop ends the process by SIGTERM and returns an error if it ended badly.
func (c *Child) Stop() error {
	select {
	case <-c.exited:
		return fmt.Errorf("%s ended by itself: %w\n%s", c.name, errors.Join(c.err), c.lastLines())
	default:
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.exited:
	case <-time.After(childPatience):
		c.Kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM", c.name, childPatience)
	}
	if c.err != nil {
		return fmt.Errorf("%s: %w\n%s", c.name, c.err, c.lastLines())
	}
	return nil
}
