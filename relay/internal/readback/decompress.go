package readback

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

// minBatchLimit is the least limit of the size that a batch decompresses to.
const minBatchLimit = 16 << 20

// batchLimit returns the limit for a relay. Its own batches have at most maxRecordBytes before
// they are compressed; a larger one is of another producer.
func batchLimit(maxRecordBytes int32) int { return max(minBatchLimit, 2*int(maxRecordBytes)) }

// errBatchTooLarge means that a batch decompresses to more than the limit.
var errBatchTooLarge = errors.New("it decompresses to more than a relay writes")

// decompressor decompresses batches of up to limit bytes into memory that the next call
// uses again. Package kgo's has no limit. It is not safe for concurrent use.
type decompressor struct {
	limit int

	out  bytes.Buffer
	src  bytes.Reader
	gzip gzip.Reader
	lz4  *lz4.Reader
	zstd *zstd.Decoder
}

// decompress returns the records of a batch. They are valid until the next call.
func (d *decompressor) decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
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
			if d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(d.limit))); err != nil {
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

// read reads at most limit bytes.
func (d *decompressor) read(r io.Reader) ([]byte, error) {
	n, err := d.out.ReadFrom(io.LimitReader(r, int64(d.limit)+1))
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) || n > int64(d.limit) {
		d.out = bytes.Buffer{} // a buffer of this size is not kept
		return nil, errBatchTooLarge
	}
	return d.out.Bytes(), err
}

// xerial is the prefix of the blocks that Java's snappy writes, each behind its length.
var xerial = []byte{130, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeaderSize = 16

var errXerial = errors.New("the blocks of snappy have the wrong lengths")

// snappy decompresses one block, or those of Java's snappy.
func (d *decompressor) snappy(src []byte) ([]byte, error) {
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
func (d *decompressor) block(src []byte) ([]byte, error) {
	n, err := s2.DecodedLen(src)
	switch {
	case err != nil:
		return nil, err
	case n > d.limit-d.out.Len():
		return nil, errBatchTooLarge
	}
	d.out.Grow(n)
	out, err := s2.Decode(d.out.AvailableBuffer()[:n], src)
	if err != nil {
		return nil, err
	}
	d.out.Write(out)
	return d.out.Bytes(), nil
}
