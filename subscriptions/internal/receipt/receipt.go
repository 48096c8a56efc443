// Package receipt signs and verifies the receipts of deliveries. A receipt is a text
// that names one delivery of a message.
//
// # Premises
//
//   - It relies on one key that all instances share, and that stays. If it is replaced, all receipts
//     are invalid: their leases expire, and the messages are delivered again.
//   - It relies on the limits of names: 60 bytes of a subscription, 249 of a topic, 255 of an
//     instance. If one is much longer, the receipts that contain it are invalid.
package receipt

import (
	"bytes"
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
	// Offset is that of the message in the queue: negative for a replay of a dead letter.
	Offset int64
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
	version = 3
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

// mac computes signatures in its own memory, which also holds a receipt and its text.
type mac struct {
	hash      hash.Hash
	sum       [sha256.Size]byte
	buf, text []byte
}

// Sign returns the text of the receipt, in the alphabet of base64url.
func (s *Signer) Sign(r *Receipt) string {
	m := s.macs.Get().(*mac) //nolint:forcetypeassert // New puts no other
	defer s.macs.Put(m)
	buf := append(m.buf[:0], version)
	buf = appendText(buf, r.Instance)
	buf = appendText(buf, r.Subscription)
	buf = appendText(buf, r.Topic)
	buf = binary.AppendUvarint(buf, uint64(r.Partition))
	buf = binary.AppendUvarint(buf, uint64(r.Offset))
	buf = binary.AppendUvarint(buf, uint64(r.Attempt))
	buf = binary.AppendUvarint(buf, r.Lease)
	buf = binary.AppendUvarint(buf, uint64(r.Epoch))
	m.buf = append(buf, m.sign(buf)...)
	m.text = base64.RawURLEncoding.AppendEncode(m.text[:0], m.buf)
	return string(m.text)
}

// sign returns the signature of body, which is valid until the next call.
func (m *mac) sign(body []byte) []byte {
	m.hash.Reset()
	_, _ = m.hash.Write(body) // never fails
	return m.hash.Sum(m.sum[:0])[:signature]
}

// Parse returns the receipt of a text that Sign has written under the same key, and
// ErrInvalid for every other text. The time does not depend on the signature.
func (s *Signer) Parse(text string) (Receipt, error) {
	if len(text) > maxLength {
		return Receipt{}, ErrInvalid
	}
	m := s.macs.Get().(*mac) //nolint:forcetypeassert // New puts no other
	defer s.macs.Put(m)
	m.text = append(m.text[:0], text...)
	buf, err := strict.AppendDecode(m.buf[:0], m.text)
	m.buf = buf
	if err != nil || len(buf) < signature+1 || base64.RawURLEncoding.EncodedLen(len(buf)) != len(text) {
		return Receipt{}, ErrInvalid // the decoder ignores line ends, which the length shows
	}
	body, sent := buf[:len(buf)-signature], buf[len(buf)-signature:]
	if !hmac.Equal(sent, m.sign(body)) || body[0] != version {
		return Receipt{}, ErrInvalid
	}
	d := decoder{buf: body[1:], texts: string(body[1:])}
	r := Receipt{
		Instance: d.text(), Subscription: d.text(), Topic: d.text(), Partition: int32(d.number(math.MaxInt32)), Offset: int64(d.number(math.MaxUint64)),
		Attempt: int(d.number(math.MaxInt32)), Lease: d.number(math.MaxUint64), Epoch: int64(d.number(math.MaxInt64)),
	}
	if d.bad || len(d.buf) != 0 {
		return Receipt{}, ErrInvalid
	}
	return r, nil
}

// strict refuses texts that have bits of no byte.
var strict = base64.RawURLEncoding.Strict()

// Names reports whether text begins as the receipts of an instance do: if Parse accepts it,
// its Instance is this one. The rest and the signature are not verified. It is false for
// names of more than 255 bytes.
func Names(text, instance string) bool {
	const most = 1 + 2 + 255 // a multiple of 3, which are 4 characters
	if len(instance) > 255 {
		return false
	}
	var want, got [most]byte
	var chars [most / 3 * 4]byte
	begin := appendText(append(want[:0], version), instance)
	n := (len(begin) + 2) / 3 * 4
	if len(text) < n {
		return false
	}
	copy(chars[:], text[:n])
	n, err := base64.RawURLEncoding.Decode(got[:], chars[:n])
	return err == nil && bytes.HasPrefix(got[:n], begin)
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
