package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/golang/snappy"
	"github.com/pierrec/lz4/v4"
)

// Compression is a compression of frame bodies.
type Compression uint8

// The compressions.
const (
	NoCompression Compression = iota
	LZ4
	Snappy
)

// Decompress returns the plain body of a compressed one. limit limits its size. The
// errors have ScyllaDB's texts.
func (c Compression) Decompress(in []byte, limit int) ([]byte, error) {
	switch c {
	case LZ4:
		if len(in) < 4 {
			return nil, errors.New("CQL frame truncated: not enough bytes for the uncompressed length")
		}
		n := int32(binary.BigEndian.Uint32(in))
		if n < 0 {
			return nil, fmt.Errorf("CQL frame uncompressed length is negative: %d", n)
		}
		// A block grows by at most 255 times; a larger size is false and would cost
		// memory.
		if in = in[4:]; int(n) > limit || int(n) > 255*len(in) {
			return nil, errors.New("CQL frame LZ4 uncompression failure")
		}
		out := make([]byte, n)
		if n == 0 {
			return out, nil
		}
		if got, err := lz4.UncompressBlock(in, out); err != nil || got != int(n) {
			return nil, errors.New("CQL frame LZ4 uncompression failure")
		}
		return out, nil
	case Snappy:
		if n, err := snappy.DecodedLen(in); err != nil || n > limit {
			return nil, errors.New("CQL frame Snappy uncompression failure")
		}
		out, err := snappy.Decode(nil, in)
		if err != nil {
			return nil, errors.New("CQL frame Snappy uncompression failure")
		}
		return out, nil
	}
	return nil, errors.New("no compression was agreed on")
}

// AppendFrame appends a finished frame to dst with its body compressed. With
// NoCompression the frame is appended unchanged.
func (c Compression) AppendFrame(dst, frame []byte) []byte {
	if c == NoCompression {
		return append(dst, frame...)
	}
	start := len(dst)
	dst = append(dst, frame[:HeaderSize]...)
	body := frame[HeaderSize:]
	switch c {
	case LZ4:
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(body)))
		at := len(dst)
		bound := lz4.CompressBlockBound(len(body))
		dst = append(dst, make([]byte, bound)...)
		if len(body) == 0 {
			dst = append(dst[:at], 0) // the block of nothing is one empty token
			break
		}
		n, err := lz4.CompressBlock(body, dst[at:], nil)
		if err != nil || n == 0 {
			// Impossible with a destination of the maximum size.
			panic(fmt.Sprintf("lz4: %d bytes of %d, %v", n, len(body), err))
		}
		dst = dst[:at+n]
	case Snappy:
		dst = append(dst, snappy.Encode(nil, body)...)
	}
	End(dst[start:], FlagCompressed)
	return dst
}
