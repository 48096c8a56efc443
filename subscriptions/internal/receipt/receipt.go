// Package receipt signs and verifies the receipts of deliveries. A receipt is a text
// that names one delivery of a message.
package receipt

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash"
	"math"
	"sync"
)

// Receipt names one delivery of a message.
type Receipt struct {
	Subscription, Topic string
	Partition           int32
	Offset              int64
	// Attempt is the number of the delivery, from 1.
	Attempt int
	// Lease is unique in an epoch of the partition.
	Lease uint64
	// Epoch is that of the owner which leased the message.
	Epoch int64
	// Instance is the owner; requests with the receipt are forwarded to it.
	Instance string
}

const (
	version = 1
	// signature is the length of the truncated HMAC-SHA-256.
	signature = 16
	// maxLength bounds the text of a receipt: names of 60, 249 and 255 bytes, and the
	// numbers.
	maxLength = 1024
)

// ErrInvalid is returned by Parse for every text that is not a receipt under the key. It
// contains no reason, so that it is no help in forging one.
var ErrInvalid = errors.New("it is no receipt of this subscription")

// Signer signs and verifies receipts under one key. It is safe for concurrent use.
type Signer struct{ macs sync.Pool }

// New returns the Signer of a key, which has at least 16 bytes.
func New(key []byte) (*Signer, error) {
	if len(key) < 16 {
		return nil, errors.New("the key of receipts is shorter than 16 bytes")
	}
	key = append([]byte(nil), key...)
	s := new(Signer)
	s.macs.New = func() any { return &mac{hash: hmac.New(sha256.New, key)} }
	return s, nil
}

// mac computes signatures in its own memory.
type mac struct {
	hash hash.Hash
	sum  [sha256.Size]byte
}

// Sign returns the text of the receipt, in the alphabet of base64url.
func (s *Signer) Sign(r *Receipt) string {
	buf := make([]byte, 0, 128+len(r.Topic)+len(r.Subscription)+len(r.Instance))
	buf = append(buf, version)
	buf = appendText(buf, r.Subscription)
	buf = appendText(buf, r.Topic)
	buf = binary.AppendUvarint(buf, uint64(r.Partition))
	buf = binary.AppendUvarint(buf, uint64(r.Offset))
	buf = binary.AppendUvarint(buf, uint64(r.Attempt))
	buf = binary.AppendUvarint(buf, r.Lease)
	buf = binary.AppendUvarint(buf, uint64(r.Epoch))
	buf = appendText(buf, r.Instance)
	buf = s.sum(buf, buf)
	return base64.RawURLEncoding.EncodeToString(buf)
}

// sum appends the signature of text to dst.
func (s *Signer) sum(dst, text []byte) []byte {
	m := s.macs.Get().(*mac) //nolint:forcetypeassert // New puts no other
	m.hash.Reset()
	_, _ = m.hash.Write(text) // never fails
	dst = append(dst, m.hash.Sum(m.sum[:0])[:signature]...)
	s.macs.Put(m)
	return dst
}

// Parse returns the receipt of a text that Sign has written under the same key, and
// ErrInvalid for every other text. The time does not depend on the signature.
func (s *Signer) Parse(text string) (Receipt, error) {
	if len(text) > maxLength {
		return Receipt{}, ErrInvalid
	}
	buf, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(buf) < signature+1 || base64.RawURLEncoding.EncodedLen(len(buf)) != len(text) {
		return Receipt{}, ErrInvalid // the decoder ignores line ends, which the length shows
	}
	body, sent := buf[:len(buf)-signature], buf[len(buf)-signature:]
	if !hmac.Equal(sent, s.sum(make([]byte, 0, signature), body)) || body[0] != version {
		return Receipt{}, ErrInvalid
	}
	d := decoder{buf: body[1:], texts: string(body[1:])}
	r := Receipt{
		Subscription: d.text(), Topic: d.text(), Partition: int32(d.number(math.MaxInt32)), Offset: int64(d.number(math.MaxInt64)),
		Attempt: int(d.number(math.MaxInt32)), Lease: d.number(math.MaxUint64), Epoch: int64(d.number(math.MaxInt64)), Instance: d.text(),
	}
	if d.bad || len(d.buf) != 0 {
		return Receipt{}, ErrInvalid
	}
	return r, nil
}

func appendText(buf []byte, s string) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(s))), s...)
}

// decoder reads the fields of a receipt; bad is set after an error. buf is the rest of
// texts, of which the texts are parts.
type decoder struct {
	buf   []byte
	texts string
	bad   bool
}

func (d *decoder) number(most uint64) uint64 {
	u, n := binary.Uvarint(d.buf)
	if n <= 0 || u > most {
		d.buf, d.bad = nil, true
		return 0
	}
	d.buf = d.buf[n:]
	return u
}

func (d *decoder) text() string {
	n := d.number(uint64(len(d.buf)))
	if n > uint64(len(d.buf)) {
		d.buf, d.bad = nil, true
		return ""
	}
	at := len(d.texts) - len(d.buf)
	d.buf = d.buf[n:]
	return d.texts[at : at+int(n)]
}
