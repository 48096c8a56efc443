package cqltype

import (
	"bytes"
	"testing"
)

func TestAppendOption(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]byte{
		"text":                 {0, 0x0d},
		"frozen<list<int>>":    {0, 0x20, 0, 0x09},
		"map<uuid, text>":      {0, 0x21, 0, 0x0c, 0, 0x0d},
		"tuple<int, set<int>>": {0, 0x31, 0, 2, 0, 0x09, 0, 0x22, 0, 0x09},
	} {
		ty, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendOption(nil, ty); !bytes.Equal(got, want) {
			t.Errorf("AppendOption(%s) = %x, want %x", text, got, want)
		}
	}
}
