package brokerstate

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	lengthEnd = 12      // of a batch's first offset and length
	headerEnd = 61      // of everything before its records
	maxLength = 1 << 30 // kfake's limit
	control   = 0x20    // attribute of the marker that ends a transaction
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readSegment calls each with the header of each batch in a segment file, up to the
// first that is truncated or damaged: there kfake truncates the file too. The header's
// Records are not set.
func readSegment(path string, each func(*kmsg.RecordBatch)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<16)
	head := make([]byte, headerEnd)
	sum := crc32.New(castagnoli)
	for {
		if _, err := io.ReadFull(r, head[:lengthEnd]); err != nil {
			return cutOff(err)
		}
		length := int64(binary.BigEndian.Uint32(head[8:lengthEnd]))
		if length < headerEnd-lengthEnd || length > maxLength {
			return nil
		}
		if _, err := io.ReadFull(r, head[lengthEnd:]); err != nil {
			return cutOff(err)
		}
		sum.Reset()
		sum.Write(head[21:]) // the bytes before are the broker's own
		if _, err := io.CopyN(sum, r, length-(headerEnd-lengthEnd)); err != nil {
			return cutOff(err)
		}
		if sum.Sum32() != binary.BigEndian.Uint32(head[17:21]) {
			return nil
		}
		each(header(head))
	}
}

// header decodes the fields before the records of a batch.
func header(b []byte) *kmsg.RecordBatch {
	return &kmsg.RecordBatch{
		FirstOffset:   int64(binary.BigEndian.Uint64(b)),
		Attributes:    int16(binary.BigEndian.Uint16(b[21:])),
		ProducerID:    int64(binary.BigEndian.Uint64(b[43:])),
		ProducerEpoch: int16(binary.BigEndian.Uint16(b[51:])),
		FirstSequence: int32(binary.BigEndian.Uint32(b[53:])),
		NumRecords:    int32(binary.BigEndian.Uint32(b[57:])),
	}
}

// cutOff returns nil for the end of a file, at any position of a batch.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}
