package cql

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// FuzzParse: any text gives a statement or a SyntaxError with a place inside
// the text, without panic and in time linear in its length.
func FuzzParse(f *testing.F) {
	for _, g := range readGolden(f) {
		f.Add(g.CQL)
	}
	f.Add("SELECT * FROM t WHERE ((((((a = 1))))))")
	f.Add("INSERT INTO t (a) VALUES ({1: [(2), {x: $$a$$}]})")
	f.Fuzz(func(t *testing.T, text string) {
		start := time.Now()
		stmt, err := Parse(text)
		if d := time.Since(start); d > time.Second+time.Duration(len(text))*10*time.Microsecond {
			t.Errorf("took %v for %d bytes", d, len(text))
		}
		var syntax *SyntaxError
		switch {
		case err == nil && stmt == nil:
			t.Error("neither statement nor error")
		case err != nil && !errors.As(err, &syntax):
			t.Errorf("error is a %T", err)
		case syntax != nil && (syntax.Line < 1 || syntax.Line > 1+strings.Count(text, "\n") || syntax.Column < 0 || syntax.Column > len(text) || syntax.Message == ""):
			t.Errorf("error at %d:%d %q", syntax.Line, syntax.Column, syntax.Message)
		}
	})
}

// FuzzLex: the tokens lie in the text, in order, and none is empty.
func FuzzLex(f *testing.F) {
	for _, text := range []string{"1h30m", "P1Y2M", "-P", "1.e5", "0xg", "--\n", "/**/", "$$$", `""""`, "a'b", "5µs", "\xff", "50554d6e-29bb-11e5-b345-feff819cdc9f"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		toks, err := lex(text, nil)
		if err != nil {
			return
		}
		end := int32(0)
		for i, tok := range toks {
			last := i == len(toks)-1
			if tok.start < end || int(tok.end) > len(text) || (tok.kind == tEOF) != last || !last && tok.end <= tok.start {
				t.Fatalf("token %d of %q is %+v", i, text, tok)
			}
			end = tok.end
		}
	})
}
