package golden

import (
	"strings"
	"testing"
)

func TestReadLeftOut(t *testing.T) {
	t.Parallel()
	left, err := ReadLeftOut(strings.NewReader("# a comment\n\nC C12 5-7 refused  no counters\nB B1 0 follows it must\n"))
	if err != nil {
		t.Fatal(err)
	}
	if e := left.Find("C", "C12", 6); e == nil || !e.Refused || e.Reason != "no counters" {
		t.Errorf("Find(C C12 6) = %+v", e)
	}
	if left.Find("C", "C12", 8) != nil || left.Find("D", "C12", 6) != nil {
		t.Error("Find() finds a step that is not listed")
	}
	for _, bad := range []string{"C C12 5 refused", "C C12 5 perhaps why", "C C12 x refused why", "C C12 7-5 refused why"} {
		if _, err := ReadLeftOut(strings.NewReader(bad)); err == nil {
			t.Errorf("ReadLeftOut(%q) succeeds", bad)
		}
	}
}

func TestSum(t *testing.T) {
	t.Parallel()
	c := &Case{File: "C", Name: "C1"}
	refusal, result := &Answer{Opcode: opError, Code: 0x2200}, &Answer{Opcode: opResult}
	left := LeftOuts{
		{File: "C", Case: "C1", First: 2, Last: 2, Refused: true, Reason: "refused"},
		{File: "C", Case: "C1", First: 3, Last: 3, Refused: true, Reason: "refused"},
		{File: "C", Case: "C1", First: 4, Last: 5, Reason: "follows"},
		{File: "C", Case: "C1", First: 9, Last: 9, Reason: "is not played"},
	}
	step := func(n int, diff string, a *Answer) Outcome { return Outcome{&Record{Step: n}, diff, a} }
	s := Sum(c, []Outcome{
		step(1, "", result),
		step(2, "differs", refusal),
		step(3, "differs", result), // should have been refused
		step(4, "differs", result),
		step(5, "", result),        // need not be listed
		step(6, "differs", result), // is not listed
	}, left)
	if s.Steps != 6 || s.Agreed != 2 || s.LeftOut != 2 || len(s.Wrong) != 3 {
		t.Errorf("Sum() = %+v", s)
	}
	for i, want := range []string{"step 3", "step 5", "step 6"} {
		if i >= len(s.Wrong) || !strings.Contains(s.Wrong[i], want) {
			t.Errorf("Wrong = %q, want %s", s.Wrong, want)
		}
	}
	if got := s.Unneeded("C", left); len(got) != 3 {
		t.Errorf("Unneeded() = %q, want those of steps 3, 5 and 9", got)
	}
}

// A step that names a refused feature is derived, and so is each differing step after
// it; one that differs before it, or that is listed, is not.
func TestDerive(t *testing.T) {
	t.Parallel()
	c := &Case{File: "C", Name: "C1"}
	names := &Answer{Opcode: opError, Code: 0x2200, Message: "scyllafake does not support views"}
	step := func(n int, diff string, a *Answer) Outcome { return Outcome{&Record{Step: n}, diff, a} }
	out := []Outcome{
		step(1, "differs", &Answer{Opcode: opError, Code: 0x2200, Message: "unconfigured table v"}),
		step(2, "differs", names),
		step(3, "differs", names),
		step(4, "", &Answer{Opcode: opResult}),
		step(5, "differs", nil),
		step(6, "differs", names),
		step(7, "differs", &Answer{Opcode: opResult}),
	}
	derived := Derive(c, out, LeftOuts{{File: "C", Case: "C1", First: 6, Last: 6}})
	var b strings.Builder
	if _, err := derived.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	want := "C C1 2-3 refused views\nC C1 5 follows after step 2: views\nC C1 7 follows after step 2: views\n"
	if b.String() != want {
		t.Errorf("Derive() = %q, want %q", b.String(), want)
	}
	again, err := ReadLeftOut(strings.NewReader(b.String()))
	if err != nil || len(again) != 3 || !again[0].Refused || again[0].Last != 3 {
		t.Errorf("ReadLeftOut() of it = %v, %v", again, err)
	}
}
