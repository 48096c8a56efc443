package readback

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/decompress"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// compress compresses data like a producer of that codec; blocks are Java's of snappy.
func compress(t *testing.T, codec kgo.CompressionCodecType, blocks bool, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var err error
	switch codec {
	case kgo.CodecGzip:
		w := gzip.NewWriter(&out)
		_, err = w.Write(data)
		err = errors.Join(err, w.Close())
	case kgo.CodecLz4:
		w := lz4.NewWriter(&out)
		_, err = w.Write(data)
		err = errors.Join(err, w.Close())
	case kgo.CodecZstd:
		var w *zstd.Encoder
		if w, err = zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1)); err == nil {
			_, err = w.Write(data)
			err = errors.Join(err, w.Close())
		}
	case kgo.CodecSnappy:
		if !blocks {
			return s2.EncodeSnappy(nil, data)
		}
		out.Write(append([]byte{130, 'S', 'N', 'A', 'P', 'P', 'Y', 0}, 0, 0, 0, 1, 0, 0, 0, 1))
		for len(data) > 0 {
			n := min(len(data), 32<<10)
			block := s2.EncodeSnappy(nil, data[:n])
			out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(block))))
			out.Write(block)
			data = data[n:]
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// compressedBatch returns a batch of events with its records compressed.
func compressedBatch(t *testing.T, batch []byte, codec kgo.CompressionCodecType, blocks bool) []byte {
	t.Helper()
	out := append(batch[:batchHeaderSize:batchHeaderSize], compress(t, codec, blocks, batch[batchHeaderSize:])...)
	binary.BigEndian.PutUint32(out[batchLengthAt:], uint32(len(out)-batchLengthAt-4))
	binary.BigEndian.PutUint16(out[batchAttributesAt:], uint16(codec))
	return out
}

// A batch of another producer that decompresses to gigabytes costs a bounded memory. It is
// skipped as a corrupt one: the events before and after it are found.
func TestBatchScanner_BoundsCompressedBatches(t *testing.T) { //nolint:paralleltest // it measures memory
	all := relaytest.Events(30, 1, "OrderCreated")
	for _, c := range []struct {
		name   string
		codec  kgo.CompressionCodecType
		blocks bool
	}{
		{"gzip", kgo.CodecGzip, false},
		{"snappy", kgo.CodecSnappy, false},
		{"snappy in blocks", kgo.CodecSnappy, true},
		{"lz4", kgo.CodecLz4, false},
		{"zstd", kgo.CodecZstd, false},
	} {
		huge := make([]byte, batchHeaderSize+400<<20)
		copy(huge, encodeBatch(10, all[0])[:batchHeaderSize])
		data := compressedBatch(t, encodeBatch(0, all[:10]...), c.codec, c.blocks)
		data = append(data, compressedBatch(t, huge, c.codec, c.blocks)...)
		data = append(data, compressedBatch(t, encodeBatch(11, all[10:]...), c.codec, c.blocks)...)
		huge = nil
		s := newBatchScanner("test")
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		n := 0
		next, err := s.scan(data, 0, func(Event) { n++ })
		runtime.ReadMemStats(&after)
		if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > 80 {
			t.Errorf("%s: a batch that decompresses to 400 MB allocates %d MB", c.name, allocated)
		}
		if next != 31 || n != len(all) || !errors.Is(err, errBatch) || !errors.Is(err, decompress.ErrTooLarge) {
			t.Errorf("%s: scan() = %d, %v with %d events, want 31, %v and %d", c.name, next, err, n, decompress.ErrTooLarge, len(all))
		}
	}
}
