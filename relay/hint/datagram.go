package hint

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
	// maxTokens keeps a datagram small enough to avoid fragmentation on any network.
	maxTokens = (1200 - headerSize - macSize) / 8
	// MaxAge is the maximum difference between a datagram's time and the relay's clock.
	MaxAge = 5 * time.Second
	// MinKey is the minimum length of a key in bytes.
	MinKey = 16
)

// ErrKey is the error of a key that is too short.
var ErrKey = errors.New("hint: the key has fewer than 16 bytes")

// header contains the fields of a datagram other than its tokens.
type header struct {
	sender, number uint64
	at             time.Time
}

// codec signs and checks datagrams. It is not safe for concurrent use.
type codec struct {
	mac hash.Hash
	sum [sha256.Size]byte
}

func newCodec(key []byte) (*codec, error) {
	if len(key) < MinKey {
		return nil, ErrKey
	}
	return &codec{mac: hmac.New(sha256.New, key)}, nil
}

// sign returns the MAC of b, valid until the next call.
func (c *codec) sign(b []byte) []byte {
	c.mac.Reset()
	c.mac.Write(b)
	return c.mac.Sum(c.sum[:0])[:macSize]
}

// append appends a datagram with at most maxTokens tokens to b, which is empty.
func (c *codec) append(b []byte, h header, tokens []int64) []byte {
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint64(b, h.sender)
	b = binary.BigEndian.AppendUint64(b, h.number)
	b = binary.BigEndian.AppendUint64(b, uint64(h.at.UnixMilli()))
	for _, t := range tokens {
		b = binary.BigEndian.AppendUint64(b, uint64(t))
	}
	return append(b, c.sign(b)...)
}

// parse checks a datagram and appends its tokens to tokens.
func (c *codec) parse(b []byte, tokens []int64) (header, []int64, result) {
	n := len(b) - headerSize - macSize
	if n <= 0 || n%8 != 0 || n/8 > maxTokens || string(b[:len(magic)]) != magic {
		return header{}, tokens, malformed
	}
	signed := b[:len(b)-macSize]
	if subtle.ConstantTimeCompare(c.sign(signed), b[len(signed):]) != 1 {
		return header{}, tokens, forged
	}
	h := header{
		sender: binary.BigEndian.Uint64(b[4:]),
		number: binary.BigEndian.Uint64(b[12:]),
		at:     time.UnixMilli(int64(binary.BigEndian.Uint64(b[20:]))),
	}
	for rest := signed[headerSize:]; len(rest) > 0; rest = rest[8:] {
		tokens = append(tokens, int64(binary.BigEndian.Uint64(rest)))
	}
	return h, tokens, accepted
}

// result is the outcome of a received datagram.
type result uint8

const (
	accepted  result = iota
	malformed        // not a datagram of this version
	forged           // not signed with the key
	stale            // too old or too new
	replayed         // its number or a later one was received before
	limited          // above the rate limit
)

var results = [...]string{accepted: "accepted", malformed: "malformed", forged: "forged", stale: "stale", replayed: "replayed", limited: "limited"}
