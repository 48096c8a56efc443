package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// screen merges the output of concurrent tiers, line by line.
type screen struct {
	mu  sync.Mutex
	out io.Writer
}

// say writes a line.
func (s *screen) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.out, line)
}

// of returns the screen of one tier: each of its lines has its name.
func (s *screen) of(name string) *pane { return &pane{screen: s, name: name} }

// pane is safe for use by one goroutine.
type pane struct {
	screen *screen
	name   string
	begun  []byte // of a line
}

func (p *pane) Write(b []byte) (int, error) {
	p.begun = append(p.begun, b...)
	for {
		line, rest, ok := bytes.Cut(p.begun, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		p.screen.say(p.name + ": " + string(line))
		p.begun = rest
	}
}

// close writes an unterminated last line.
func (p *pane) close() {
	if len(p.begun) > 0 {
		p.screen.say(p.name + ": " + string(p.begun))
		p.begun = nil
	}
}
