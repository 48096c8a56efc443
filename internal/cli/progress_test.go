package cli

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// A line that is drawn over fits into the terminal; the last one, which stays, is whole.
func TestProgress_FitsTheTerminal(t *testing.T) {
	t.Parallel()
	const detail = "done, 1000 published, 0 died again, 0 waiting"
	for _, columns := range []int{0, 1, 2, 20, 40, 80, 132} {
		var out strings.Builder
		p, work := NewProgress(&out, nil), Work{Done: 500, Total: 1000, Detail: detail}
		p.Terminal, p.columns = true, func() int { return columns }
		p.Draw(work, 100, false)
		line := strings.TrimPrefix(out.String(), "\r\x1b[K")
		if n := utf8.RuneCountInString(line); columns > 0 && n >= columns {
			t.Errorf("in %d columns the line takes %d: %q", columns, n, line)
		}
		if whole := columns == 0 || columns > 100; whole != strings.Contains(line, "["+strings.Repeat("█", 15)+strings.Repeat("·", 15)+"] 500/1000  100/s  "+detail) {
			t.Errorf("in %d columns the line is %q", columns, line)
		}
		if columns >= 20 && !strings.Contains(line, "500/1000") {
			t.Errorf("in %d columns the line does not say how far it is: %q", columns, line)
		}
		out.Reset()
		p.Draw(work, 100, true)
		if !strings.HasSuffix(out.String(), detail+"\n") {
			t.Errorf("in %d columns the last line is %q", columns, out.String())
		}
	}
}
