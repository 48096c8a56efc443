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

// refusal begins the message with which a server names a feature that it does not have.
const refusal = "scyllafake does not support "

// Derive returns the entries that the responses of a case themselves require, besides
// those of listed: for a step that differs because its response names a feature that the
// server does not have, and for one that differs after such a step.
func Derive(c *Case, out []Outcome, listed LeftOuts) LeftOuts {
	var derived LeftOuts
	var first *LeftOut
	for _, o := range out {
		if o.Diff == "" {
			continue
		}
		e := &LeftOut{File: c.File, Case: c.Name, First: o.Record.Step, Last: o.Record.Step}
		if feature := refusedFeature(o.Actual); feature != "" {
			e.Refused, e.Reason = true, feature
			if first == nil {
				first = e
			}
		} else if first != nil {
			e.Reason = fmt.Sprintf("after step %d: %s", first.First, first.Reason)
		}
		if e.Reason != "" && listed.Find(c.File, c.Name, e.First) == nil {
			derived = append(derived, e)
		}
	}
	return derived
}

// refusedFeature returns the feature that an error names, "" if a is no such error.
func refusedFeature(a *Answer) string {
	if a == nil || a.Opcode != opError {
		return ""
	}
	_, feature, _ := strings.Cut(a.Message, refusal)
	return feature
}

// WriteTo writes the entries in the form that ReadLeftOut reads, neighbours with one
// reason as one.
func (l LeftOuts) WriteTo(w io.Writer) (n int64, err error) {
	for i := 0; i < len(l); i++ {
		e := *l[i]
		for i+1 < len(l) && e.precedes(l[i+1]) {
			i++
			e.Last = l[i].Last
		}
		steps, kind := strconv.Itoa(e.First), "follows"
		if e.Last > e.First {
			steps += "-" + strconv.Itoa(e.Last)
		}
		if e.Refused {
			kind = "refused"
		}
		m, err := fmt.Fprintf(w, "%s %s %s %s %s\n", e.File, e.Case, steps, kind, e.Reason)
		n += int64(m)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// precedes reports whether next continues e: the next step of its case, with the same
// reason.
func (e *LeftOut) precedes(next *LeftOut) bool {
	return next.File == e.File && next.Case == e.Case && next.First == e.Last+1 &&
		next.Refused == e.Refused && next.Reason == e.Reason
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
