// Package position encodes the set of settled offsets behind a committed offset as the
// metadata of an offset commit, with the origin of the position: to what the offsets belong.
//
// A coordinator stores a commit under the name of its topic (OffsetCommit before version 10),
// so the position of a deleted topic may be stored for the topic that replaces it. The topic
// id of the origin shows that.
package position

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// Window is the number of offsets behind the committed one that a position can describe.
// No record at or after Offset+Window is delivered.
const Window = 10_000

// MaxMetadata is the maximum length of the metadata, the default of Kafka's
// offset.metadata.max.bytes.
const MaxMetadata = 4096

// version is the first byte of the metadata.
const version = 2

// Origin identifies the records that the offsets of a position belong to.
type Origin struct {
	// TopicID is the id of the topic.
	TopicID [16]byte
	// Generation grows whenever reading begins anew: with each other topic of the name, and
	// whenever it goes back, as after a seek, or after the committed offset was lost or set by
	// another program. In one generation an offset is one message.
	Generation int64
	// Seek is the version of the seek that the partition has applied last.
	Seek int64
}

// Set contains the settled offsets of a partition at and after Base. It is not safe for
// concurrent use.
type Set struct {
	base  int64 // a multiple of 64
	words []uint64
}

// Add adds an offset and reports whether it is new. Offsets must not be below the
// lowest one that Forget left.
func (s *Set) Add(offset int64) bool {
	if len(s.words) == 0 {
		s.base = offset &^ 63
	}
	if offset < s.base { // the first offset was not the lowest one
		n := int((s.base - offset + 63) / 64)
		s.words = append(make([]uint64, n), s.words...)
		s.base -= int64(n) * 64
	}
	i := int(offset-s.base) / 64
	for len(s.words) <= i {
		s.words = append(s.words, 0)
	}
	bit := uint64(1) << (offset & 63)
	fresh := s.words[i]&bit == 0
	s.words[i] |= bit
	return fresh
}

// Has reports whether the set contains the offset.
func (s *Set) Has(offset int64) bool {
	i := offset - s.base
	return i >= 0 && i/64 < int64(len(s.words)) && s.words[i/64]&(1<<(offset&63)) != 0
}

// Forget removes the offsets below from.
func (s *Set) Forget(from int64) {
	n := (from - s.base) / 64
	switch {
	case n <= 0:
	case n >= int64(len(s.words)):
		s.words, s.base = s.words[:0], 0
		return
	default:
		s.words = s.words[:copy(s.words, s.words[n:])]
		s.base += n * 64
	}
	if from > s.base && len(s.words) > 0 {
		s.words[0] &^= 1<<(uint64(from-s.base)&63) - 1
	}
}

// Len returns the number of offsets in the set.
func (s *Set) Len() (n int) {
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Encode returns the metadata of a commit of offset: the origin, and the offsets of the set
// in [offset, offset+Window). Its length is at most MaxMetadata.
func (s *Set) Encode(offset int64, o Origin) string {
	buf := make([]byte, 0, 1+len(o.TopicID)+2*binary.MaxVarintLen64+Window/8+1)
	buf = append(buf, version)
	buf = append(buf, o.TopicID[:]...)
	buf = binary.AppendUvarint(buf, uint64(o.Generation))
	buf = binary.AppendUvarint(buf, uint64(o.Seek))
	used := len(buf)
	for at := offset; at < offset+Window; at += 8 {
		b := s.byteAt(at)
		if left := offset + Window - at; left < 8 {
			b &= 1<<left - 1
		}
		buf = append(buf, b)
		if b != 0 {
			used = len(buf)
		}
		if at-s.base >= int64(len(s.words))*64 {
			break
		}
	}
	return base64.RawURLEncoding.EncodeToString(buf[:used])
}

// byteAt returns the membership of eight offsets from at.
func (s *Set) byteAt(at int64) byte {
	i := at - s.base
	if i <= -8 || i >= int64(len(s.words))*64 {
		return 0
	}
	if i < 0 {
		return byte(s.words[0] << -i)
	}
	w := s.words[i/64] >> (i % 64)
	if i%64 > 56 && i/64+1 < int64(len(s.words)) {
		w |= s.words[i/64+1] << (64 - i%64)
	}
	return byte(w)
}

// ErrMetadata is returned by Decode for a text that Encode has not written.
var ErrMetadata = errors.New("the metadata of the committed offset is not that of a subscription")

// Decode returns the settled offsets and the origin from the metadata of a commit of offset.
// Every text that Encode has not written is an error, also an empty one.
func Decode(offset int64, metadata string) (s Set, o Origin, err error) {
	if len(metadata) > MaxMetadata {
		return Set{}, Origin{}, fmt.Errorf("%d bytes: %w", len(metadata), ErrMetadata)
	}
	buf, err := base64.RawURLEncoding.Strict().DecodeString(metadata)
	const begin = 1 + len(o.TopicID)
	if err != nil || len(buf) < begin || buf[0] != version || base64.RawURLEncoding.EncodedLen(len(buf)) != len(metadata) {
		return Set{}, Origin{}, ErrMetadata
	}
	copy(o.TopicID[:], buf[1:])
	buf = buf[begin:]
	for _, into := range []*int64{&o.Generation, &o.Seek} {
		u, n := binary.Uvarint(buf)
		if n <= 0 || int64(u) < 0 {
			return Set{}, Origin{}, ErrMetadata
		}
		*into, buf = int64(u), buf[n:]
	}
	if len(buf) > (Window+7)/8 {
		return Set{}, Origin{}, ErrMetadata
	}
	for i, b := range buf {
		for ; b != 0; b &= b - 1 {
			s.Add(offset + int64(i*8+bits.TrailingZeros8(b)))
		}
	}
	return s, o, nil
}
