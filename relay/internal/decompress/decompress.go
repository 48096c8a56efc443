// Package decompress decompresses record batches with a limit of their size, for the readers of
// topics to which others write too.
//
// It relies on the relay's own batches being smaller than the limit. A batch that is larger, or
// that cannot be decoded, is of another producer; a reader skips it.
package decompress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

// MinLimit is the least limit of the size that a batch decompresses to.
const MinLimit = 16 << 20

// Limit returns the limit for a relay. Its own batches have at most maxRecordBytes before
// they are compressed; a larger one is of another producer.
func Limit(maxRecordBytes int32) int { return max(MinLimit, 2*int(maxRecordBytes)) }

// ErrTooLarge means that a batch decompresses to more than the limit.
var ErrTooLarge = errors.New("it decompresses to more than a relay writes")

// Decompressor decompresses batches of up to Limit bytes into memory that the next call
// uses again. Package kgo's has no limit. It is not safe for concurrent use.
type Decompressor struct {
	Limit int

	out  bytes.Buffer
	src  bytes.Reader
	gzip gzip.Reader
	lz4  *lz4.Reader
	zstd *zstd.Decoder
}

// Skipping is a kgo.Decompressor for kgo.ProcessFetchPartition, which reports every batch that
// d cannot decompress by a *kgo.ErrDecompressTooLarge with the offset after it. The records are
// copies. It is not safe for concurrent use.
type Skipping struct{ *Decompressor }

// Decompress implements kgo.Decompressor.
func (d Skipping) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	out, err := d.Decompressor.Decompress(src, codec)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", kgo.ErrMaxDecompress, err)
	}
	return bytes.Clone(out), nil
}

// Decompress returns the records of a batch. They are valid until the next call.
func (d *Decompressor) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	d.src.Reset(src)
	d.out.Reset()
	switch codec {
	case kgo.CodecGzip:
		if err := d.gzip.Reset(&d.src); err != nil {
			return nil, err
		}
		return d.read(&d.gzip)
	case kgo.CodecLz4:
		if d.lz4 == nil {
			d.lz4 = lz4.NewReader(nil)
		}
		d.lz4.Reset(&d.src)
		return d.read(d.lz4)
	case kgo.CodecZstd:
		if d.zstd == nil {
			var err error
			if d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(d.Limit))); err != nil {
				return nil, err
			}
		}
		if err := d.zstd.Reset(&d.src); err != nil {
			return nil, err
		}
		return d.read(d.zstd)
	case kgo.CodecSnappy:
		return d.snappy(src)
	default:
		return nil, fmt.Errorf("unknown codec %d", codec)
	}
}

// read reads at most Limit bytes.
func (d *Decompressor) read(r io.Reader) ([]byte, error) {
	n, err := d.out.ReadFrom(io.LimitReader(r, int64(d.Limit)+1))
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) || n > int64(d.Limit) {
		d.out = bytes.Buffer{} // a buffer of this size is not kept
		return nil, ErrTooLarge
	}
	return d.out.Bytes(), err
}

// xerial is the prefix of the blocks that Java's snappy writes, each behind its length.
var xerial = []byte{130, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeaderSize = 16

var errXerial = errors.New("the blocks of snappy have the wrong lengths")

// snappy decompresses one block, or the blocks of Java's snappy.
func (d *Decompressor) snappy(src []byte) ([]byte, error) {
	if !bytes.HasPrefix(src, xerial) {
		return d.block(src)
	}
	if len(src) < xerialHeaderSize {
		return nil, errXerial
	}
	for src = src[xerialHeaderSize:]; len(src) > 0; {
		if len(src) < 4 {
			return nil, errXerial
		}
		n := binary.BigEndian.Uint32(src)
		if src = src[4:]; uint64(n) > uint64(len(src)) {
			return nil, errXerial
		}
		if _, err := d.block(src[:n]); err != nil {
			return nil, err
		}
		src = src[n:]
	}
	return d.out.Bytes(), nil
}

// block appends a block of snappy to the output, and returns it.
func (d *Decompressor) block(src []byte) ([]byte, error) {
	n, err := s2.DecodedLen(src)
	switch {
	case err != nil:
		return nil, err
	case n > d.Limit-d.out.Len():
		return nil, ErrTooLarge
	}
	d.out.Grow(n)
	out, err := s2.Decode(d.out.AvailableBuffer()[:n], src)
	if err != nil {
		return nil, err
	}
	d.out.Write(out)
	return d.out.Bytes(), nil
}
