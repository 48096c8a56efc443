package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// progress shows how a long task goes: one line that is redrawn on a terminal,
// a line every ten seconds elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	total    func() int64 // 0 while it is not known
	done     func() int64
	detail   func() string // more to show at the end of the line; may be nil
}

func newProgress(w io.Writer, total int64, done func() int64, detail func() string) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd())), total: func() int64 { return total }, done: done, detail: detail}
}

// run draws until ctx ends, then once more.
func (p *progress) run(ctx context.Context) {
	every := 10 * time.Second
	if p.terminal {
		every = 200 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	began, lastAt, last, rate := time.Now(), time.Now(), int64(0), 0.0
	draw := func(end bool) {
		now, n := time.Now(), p.done()
		if d := now.Sub(lastAt).Seconds(); d > 0.05 {
			// A moving average, so that the figure can be read.
			rate = 0.7*rate + 0.3*float64(n-last)/d
			lastAt, last = now, n
		}
		if end {
			rate = float64(n) / max(now.Sub(began).Seconds(), 1e-9)
		}
		p.draw(n, rate, end)
	}
	for {
		select {
		case <-tick.C:
			draw(false)
		case <-ctx.Done():
			draw(true)
			return
		}
	}
}

const barWidth = 30

func (p *progress) draw(n int64, rate float64, end bool) {
	line := fmt.Sprintf("%d", n)
	if total := p.total(); total > 0 {
		filled := int(min(n, total) * barWidth / total)
		line = fmt.Sprintf("[%s%s] %d/%d", strings.Repeat("█", filled), strings.Repeat("·", barWidth-filled), n, total)
	}
	line += fmt.Sprintf("  %.0f/s", rate)
	if p.detail != nil {
		line += "  " + p.detail()
	}
	switch {
	case !p.terminal:
		fmt.Fprintln(p.w, line)
	case end:
		fmt.Fprintf(p.w, "\r\x1b[K%s\n", line)
	default:
		fmt.Fprintf(p.w, "\r\x1b[K%s", line)
	}
}
