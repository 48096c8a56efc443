package keys

import (
	"strings"
	"testing"
)

func TestIDOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"order-42":                             "dd578fe0-e76e-545d-8be3-80cd3d2ccc9e", // by Python's uuid.uuid5
		"abcd0102-0304-4006-8708-090a0b0c0dff": "abcd0102-0304-4006-8708-090a0b0c0dff",
	} {
		if got := IDOf(text).String(); got != want {
			t.Errorf("IDOf(%q) = %s, want %s", text, got, want)
		}
	}
	// Only the canonical form is a UUID; other forms are other texts, with other
	// keys.
	for _, text := range []string{
		"ABCD0102-0304-4006-8708-090a0b0c0dff", "abcd0102030440068708090a0b0c0dff", "abcd0102-0304-4006-8708-090a0b0c0dfg",
		"00000000-0000-0000-0000-000000000000", "abcd010200304-4006-8708-090a0b0c0dff", "",
	} {
		if got := IDOf(text); got.Version() != 5 || got.String() == strings.ToLower(text) {
			t.Errorf("IDOf(%q) = %s, want a derived one", text, got)
		}
	}
}

func TestIDOf_DoesNotAllocate(t *testing.T) {
	b := []byte("abcd0102-0304-4006-8708-090a0b0c0dff")
	short := []byte("order-42")
	if n := testing.AllocsPerRun(10, func() { IDOf(b); IDOf(short) }); n > 0 {
		t.Errorf("IDOf() allocates %v times", n)
	}
}
