// Package datagram has the format of the datagrams with hints: for relays and for tools. It may
// change in a minor version. Writers use package hint.
package datagram

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"hash"
	"time"
)

// A datagram contains: magic, 4 bytes; the sender's random id, 8; the number of the
// datagram, 8; its time in milliseconds, 8; tokens, 8 each; the first half of the HMAC of
// the preceding bytes, 16. Numbers are big endian.
const (
	magic      = "OBH1"
	headerSize = len(magic) + 3*8
	macSize    = sha256.Size / 2
	// Overhead is the size of a datagram in bytes without its tokens of 8 bytes.
	Overhead = headerSize + macSize
	// MaxTokens keeps a datagram small enough to avoid fragmentation on any network.
	MaxTokens = (1200 - Overhead) / 8
	// MinKey is the minimum length of a key in bytes.
	MinKey = 16
)

// ErrKey is the error of a key that is too short.
var ErrKey = errors.New("hint: the key has fewer than 16 bytes")

// Errors of Parse.
var (
	ErrMalformed = errors.New("hint: not a datagram of this version")
	ErrForged    = errors.New("hint: not signed with the key")
)

// Header has the fields of a datagram other than its tokens.
type Header struct {
	// Sender is the random id of the sender, and Number counts its datagrams.
	Sender, Number uint64
	At             time.Time
}

// Codec signs and checks datagrams. It is not safe for concurrent use.
type Codec struct {
	mac hash.Hash
	sum [sha256.Size]byte
}

// New returns a Codec with the key that writers and relays share. The error is ErrKey.
func New(key []byte) (*Codec, error) {
	if len(key) < MinKey {
		return nil, ErrKey
	}
	return &Codec{mac: hmac.New(sha256.New, key)}, nil
}

// sign returns the MAC of b, valid until the next call.
func (c *Codec) sign(b []byte) []byte {
	c.mac.Reset()
	c.mac.Write(b)
	return c.mac.Sum(c.sum[:0])[:macSize]
}

// Append appends a datagram with at most MaxTokens tokens to b, which is empty.
// A Codec that New has not made appends nothing.
func (c *Codec) Append(b []byte, h Header, tokens []int64) []byte {
	if c == nil || c.mac == nil {
		return b
	}
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint64(b, h.Sender)
	b = binary.BigEndian.AppendUint64(b, h.Number)
	b = binary.BigEndian.AppendUint64(b, uint64(h.At.UnixMilli()))
	for _, t := range tokens {
		b = binary.BigEndian.AppendUint64(b, uint64(t))
	}
	return append(b, c.sign(b)...)
}

// Parse checks a datagram and appends its tokens to tokens. The error is ErrMalformed, ErrForged or,
// of a Codec that New has not made, ErrKey.
func (c *Codec) Parse(b []byte, tokens []int64) (Header, []int64, error) {
	if c == nil || c.mac == nil {
		return Header{}, tokens, ErrKey
	}
	n := len(b) - Overhead
	if n <= 0 || n%8 != 0 || n/8 > MaxTokens || string(b[:len(magic)]) != magic {
		return Header{}, tokens, ErrMalformed
	}
	signed := b[:len(b)-macSize]
	if subtle.ConstantTimeCompare(c.sign(signed), b[len(signed):]) != 1 {
		return Header{}, tokens, ErrForged
	}
	h := Header{
		Sender: binary.BigEndian.Uint64(b[4:]),
		Number: binary.BigEndian.Uint64(b[12:]),
		At:     time.UnixMilli(int64(binary.BigEndian.Uint64(b[20:]))),
	}
	for rest := signed[headerSize:]; len(rest) > 0; rest = rest[8:] {
		tokens = append(tokens, int64(binary.BigEndian.Uint64(rest)))
	}
	return h, tokens, nil
}
