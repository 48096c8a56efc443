package golden

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// LeftOut is a recorded step to which a server may respond differently than the node.
type LeftOut struct {
	File, Case  string
	First, Last int // steps
	// Refused means that the response must be an error; otherwise it may be any
	// consequence of an earlier refused step, or of the reason.
	Refused bool
	Reason  string
}

// LeftOuts is a list of left-out steps.
type LeftOuts []*LeftOut

// ReadLeftOut parses a list: one entry a line, "FILE CASE STEPS refused|follows
// REASON", steps as "5" or "5-9"; empty lines and lines that begin with # are ignored.
func ReadLeftOut(r io.Reader) (LeftOuts, error) {
	var out LeftOuts
	sc := bufio.NewScanner(r)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 5 || f[3] != "refused" && f[3] != "follows" {
			return nil, fmt.Errorf("line %d: FILE CASE STEPS refused|follows REASON expected: %s", n, line)
		}
		first, last, ok := strings.Cut(f[2], "-")
		if !ok {
			last = first
		}
		l := &LeftOut{File: f[0], Case: f[1], Refused: f[3] == "refused", Reason: strings.Join(f[4:], " ")}
		var err1, err2 error
		l.First, err1 = strconv.Atoi(first)
		l.Last, err2 = strconv.Atoi(last)
		if err1 != nil || err2 != nil || l.Last < l.First {
			return nil, fmt.Errorf("line %d: no steps: %s", n, f[2])
		}
		out = append(out, l)
	}
	return out, sc.Err()
}

// Find returns the entry for a step, or nil.
func (l LeftOuts) Find(file, name string, step int) *LeftOut {
	for _, e := range l {
		if e.File == file && e.Case == name && e.First <= step && step <= e.Last {
			return e
		}
	}
	return nil
}

// Summary is the result of one or several cases.
type Summary struct {
	Steps, Agreed, LeftOut int
	// Wrong are the differences that no entry allows, and the entries of steps
	// that agree or are not refused.
	Wrong []string
	// Needed counts the differences that each entry allowed.
	Needed map[*LeftOut]int
}

// Sum evaluates the outcomes of a case by the list.
func Sum(c *Case, out []Outcome, left LeftOuts) Summary {
	s := Summary{Needed: map[*LeftOut]int{}}
	for _, o := range out {
		s.Steps++
		e := left.Find(c.File, c.Name, o.Record.Step)
		what := fmt.Sprintf("step %d %s on %s: %s", o.Record.Step, o.Record.Kind, o.Record.Conn, shorten(o.Record.CQL, 200))
		switch {
		case o.Diff == "":
			s.Agreed++
			if e != nil {
				s.Wrong = append(s.Wrong, what+"\n\tagrees: remove it from the list of left-out steps")
			}
		case e == nil:
			s.Wrong = append(s.Wrong, what+"\n\t"+o.Diff)
		case e.Refused && (o.Actual == nil || o.Actual.Opcode != opError || o.Actual.Code == 0):
			s.Wrong = append(s.Wrong, what+"\n\tis left out ("+e.Reason+") but is not refused\n\t"+o.Diff)
		default:
			s.LeftOut++
			s.Needed[e]++
		}
	}
	return s
}

// Add adds the numbers of o to s.
func (s *Summary) Add(o Summary) {
	s.Steps += o.Steps
	s.Agreed += o.Agreed
	s.LeftOut += o.LeftOut
	s.Wrong = append(s.Wrong, o.Wrong...)
	if s.Needed == nil {
		s.Needed = map[*LeftOut]int{}
	}
	for e, n := range o.Needed {
		s.Needed[e] += n
	}
}

// Unneeded returns the entries for the recording that name unknown steps, or steps
// without a difference.
func (s Summary) Unneeded(file string, left LeftOuts) []string {
	var out []string
	for _, e := range left {
		if n := s.Needed[e]; e.File == file && (n == 0 || e.First > 0 && n != e.Last-e.First+1) {
			out = append(out, fmt.Sprintf("%s %s %d-%d allows %d differences: %s", e.File, e.Case, e.First, e.Last, n, e.Reason))
		}
	}
	return out
}

func (s Summary) String() string {
	return fmt.Sprintf("%d steps, %d agreed, %d left out, %d wrong", s.Steps, s.Agreed, s.LeftOut, len(s.Wrong))
}

func shorten(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
