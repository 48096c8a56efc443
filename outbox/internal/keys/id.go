// Package keys has the text form of UUIDs, the UUIDs of other ids, and the tokens of partition keys.
package keys

import (
	"crypto/sha1" // UUIDv5 is defined with it
	"strings"

	"github.com/gocql/gocql"
)

// TextNamespace is the namespace of the ids derived from text: the UUIDv5 of
// "urn:scylla-outbox:id" in the namespace of URLs.
var TextNamespace = gocql.UUID{0x8f, 0xc7, 0xe6, 0xf0, 0xc4, 0x41, 0x54, 0xa3, 0x80, 0x44, 0x0e, 0x1b, 0x0e, 0x98, 0x0c, 0x83}

// IDOf returns the UUID of an id of type text or number: deterministic, in
// every process and language. A UUID in canonical form, 36 characters in lower
// case, maps to itself; any other text, and the zero UUID, to its UUIDv5 in
// TextNamespace.
//
// It does not allocate for a UUID or a text of up to 240 bytes.
func IDOf[T ~string | ~[]byte](text T) gocql.UUID {
	if u, ok := ParseUUID(text); ok {
		return u
	}
	var buf [256]byte
	sum := sha1.Sum(append(append(buf[:0], TextNamespace[:]...), text...))
	u := gocql.UUID(sum[:16])
	u[6] = u[6]&0x0f | 0x50
	u[8] = u[8]&0x3f | 0x80
	return u
}

// ParseUUID parses a UUID in its canonical text form, except the zero
// UUID.
func ParseUUID[T ~string | ~[]byte](b T) (u gocql.UUID, ok bool) {
	if len(b) != 36 || b[8] != '-' || b[13] != '-' || b[18] != '-' || b[23] != '-' {
		return u, false
	}
	var bad byte
	for i, at := range [16]int{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34} {
		hi, lo := hexDigits[b[at]], hexDigits[b[at+1]]
		bad |= hi | lo
		u[i] = hi<<4 | lo
	}
	return u, bad < 16 && u != gocql.UUID{}
}

// Misspelled returns the canonical form of a UUID that is written in another one: in upper case,
// or the zero UUID. Two spellings would be two partitions, and two aggregates. ok is false for a
// text that is no UUID.
func Misspelled(text string) (canonical string, ok bool) {
	if text == "" || len(text) != 36 {
		return "", false
	}
	canonical = strings.ToLower(text)
	_, ok = ParseUUID(canonical)
	return canonical, ok || canonical == (gocql.UUID{}).String()
}

// hexDigits are the values of hexadecimal digits in lower case; 0xff for all else.
var hexDigits = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i, c := range "0123456789abcdef" {
		t[c] = byte(i)
	}
	return t
}()

// AppendUUID appends u as text, lower case, without an allocation.
func AppendUUID(dst []byte, u gocql.UUID) []byte {
	const digits = "0123456789abcdef"
	for i, b := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, digits[b>>4], digits[b&15])
	}
	return dst
}
