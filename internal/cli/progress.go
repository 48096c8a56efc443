package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// Progress shows the progress of a long task: one line that is redrawn on a terminal, and a
// line every ten seconds elsewhere.
type Progress struct {
	w        io.Writer
	Terminal bool
	work     func() Work
	columns  func() int // of the terminal; 0 while unknown
}

// Work is how much of a task is finished.
type Work struct {
	// Done of Total units are finished; Total is 0 while unknown.
	Done, Total int64
	// Detail is the end of the line.
	Detail string
}

// NewProgress returns the progress of a task on w. Run calls work from its own goroutine.
func NewProgress(w io.Writer, work func() Work) *Progress {
	p := &Progress{w: w, work: work}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.Terminal = true
		p.columns = func() int {
			columns, _, err := term.GetSize(int(f.Fd()))
			if err != nil {
				return 0
			}
			return columns
		}
	}
	return p
}

// Run draws until ctx ends, then once more.
func (p *Progress) Run(ctx context.Context) {
	every := 10 * time.Second
	if p.Terminal {
		every = 200 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	began, lastAt, last, rate := time.Now(), time.Now(), int64(0), 0.0
	draw := func(end bool) {
		now, work := time.Now(), p.work()
		n := work.Done
		if d := now.Sub(lastAt).Seconds(); d > 0.05 {
			// A moving average, so that the figure can be read.
			rate = 0.7*rate + 0.3*float64(n-last)/d
			lastAt, last = now, n
		}
		if end {
			rate = float64(n) / max(now.Sub(began).Seconds(), 1e-9)
		}
		p.Draw(work, rate, end)
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

// Draw draws work at a rate per second; end draws the last line. It must not be called
// while Run runs.
func (p *Progress) Draw(work Work, rate float64, end bool) {
	n, total := work.Done, work.Total
	text := fmt.Sprintf("%d", n)
	if total > 0 {
		text += fmt.Sprintf("/%d", total)
	}
	text += fmt.Sprintf("  %.0f/s", rate)
	if work.Detail != "" {
		text += "  " + work.Detail
	}
	bar := barWidth
	if p.Terminal && !end && p.columns() > 0 {
		// A line that wraps cannot be redrawn: each time a part of it would remain.
		text = cut(text, p.columns()-1)
		bar = min(bar, p.columns()-1-utf8.RuneCountInString(text)-len("[] "))
	}
	line := text
	if total > 0 && bar > 0 {
		filled := int(min(n, total) * int64(bar) / total)
		line = fmt.Sprintf("[%s%s] %s", strings.Repeat("█", filled), strings.Repeat("·", bar-filled), text)
	}
	switch {
	case !p.Terminal:
		fmt.Fprintln(p.w, line)
	case end:
		fmt.Fprintf(p.w, "\r\x1b[K%s\n", line)
	default:
		fmt.Fprintf(p.w, "\r\x1b[K%s", line)
	}
}

// cut returns the part of text that fits into the columns.
func cut(text string, columns int) string {
	if r := []rune(text); len(r) > columns {
		return string(r[:max(columns, 0)])
	}
	return text
}
