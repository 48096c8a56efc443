package position

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

func TestMain(m *testing.M) {
	seeds.Rapid()
	m.Run()
}

// A set is the same after Encode and Decode, without the offsets outside of its window.
func TestSet_IsThatOfTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "start")
		var s Set
		model := make(map[int64]bool)
		low := start
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				o := low + rapid.Int64Range(0, 2*Window).Draw(t, "offset")
				if fresh := s.Add(o); fresh == model[o] {
					t.Fatalf("Add(%d) = %v", o, fresh)
				}
				model[o] = true
			},
			"forget": func(t *rapid.T) {
				low += rapid.Int64Range(0, Window).Draw(t, "to")
				s.Forget(low)
				maps.DeleteFunc(model, func(o int64, _ bool) bool { return o < low })
			},
			"": func(t *rapid.T) {
				if s.Len() != len(model) {
					t.Fatalf("%d offsets, want %d", s.Len(), len(model))
				}
				for o := range model {
					if !s.Has(o) {
						t.Fatalf("%d is missing", o)
					}
				}
				metadata := s.Encode(low, origin)
				if len(metadata) > MaxMetadata {
					t.Fatalf("%d bytes of metadata", len(metadata))
				}
				got, of, err := Decode(low, metadata)
				if err != nil || of != origin {
					t.Fatalf("Decode = %+v, %v", of, err)
				}
				for o := low - 100; o < low+2*Window+100; o++ {
					if want := model[o] && o < low+Window; got.Has(o) != want {
						t.Fatalf("%d: %v, want %v", o, got.Has(o), want)
					}
				}
			},
		})
	})
}

var origin = Origin{TopicID: [16]byte{1, 15: 9}, Generation: 300, Seek: 7}

func TestEncode_FullWindowFits(t *testing.T) {
	t.Parallel()
	var s Set
	for o := range int64(Window) {
		s.Add(1000 + o)
	}
	if m := s.Encode(1000, Origin{TopicID: origin.TopicID, Generation: math.MaxInt64, Seek: math.MaxInt64}); len(m) > MaxMetadata {
		t.Errorf("%d bytes, want at most %d", len(m), MaxMetadata)
	}
}

func TestDecode_RefusesOtherTexts(t *testing.T) {
	t.Parallel()
	valid := (&Set{}).Encode(5, origin)
	for _, text := range []string{"", "kgo-1234", "A", "AQ", valid[:len(valid)-2], valid + "=", valid + "\n", "AQ" + valid[2:], strings.Repeat("A", MaxMetadata+1), "Ag" + strings.Repeat("A", 3000)} {
		if _, _, err := Decode(5, text); err == nil {
			t.Errorf("Decode(%.40q) returned no error", text)
		}
	}
}

// Any text is refused, or equals the metadata of its decoded value.
func FuzzDecode(f *testing.F) {
	var s Set
	for _, o := range []int64{1, 2, 77, 4000} {
		s.Add(100 + o)
	}
	f.Add(s.Encode(100, origin))
	f.Add("")
	f.Add("Ag")
	f.Fuzz(func(t *testing.T, text string) {
		got, of, err := Decode(100, text)
		if err != nil {
			return
		}
		again, of2, err := Decode(100, got.Encode(100, of))
		if err != nil || of2 != of || !slices.Equal(trim(again.words), trim(got.words)) {
			t.Errorf("%q: %v, want %v (%v)", text, again, got, err)
		}
	})
}

func trim(w []uint64) []uint64 {
	for len(w) > 0 && w[len(w)-1] == 0 {
		w = w[:len(w)-1]
	}
	return w
}
