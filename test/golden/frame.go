package golden

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/golang/snappy"
	"github.com/pierrec/lz4/v4"
)

// Opcodes of the native protocol.
const (
	opError        = 0x00
	opStartup      = 0x01
	opReady        = 0x02
	opAuthenticate = 0x03
	opOptions      = 0x05
	opSupported    = 0x06
	opQuery        = 0x07
	opResult       = 0x08
	opPrepare      = 0x09
	opExecute      = 0x0A
	opRegister     = 0x0B
	opEvent        = 0x0C
	opBatch        = 0x0D
)

// Header flags.
const (
	flagCompressed = 0x01
	flagTracing    = 0x02
	flagPayload    = 0x04
	flagWarning    = 0x08
)

const headerSize = 9

// header is the frame header of protocol v3 and v4.
type header struct {
	Version, Flags byte
	Stream         int16
	Opcode         byte
	Length         int
}

func parseHeader(b []byte) header {
	return header{
		Version: b[0], Flags: b[1], Stream: int16(binary.BigEndian.Uint16(b[2:])), Opcode: b[4],
		Length: int(binary.BigEndian.Uint32(b[5:])),
	}
}

func (h header) frame(body []byte) []byte {
	b := []byte{h.Version, h.Flags, 0, 0, h.Opcode, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(b[2:], uint16(h.Stream))
	binary.BigEndian.PutUint32(b[5:], uint32(len(body)))
	return append(b, body...)
}

// maxFrame limits the frames of a server that misbehaves.
const maxFrame = 64 << 20

func readFrame(r io.Reader) ([]byte, error) {
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	n := parseHeader(head).Length
	if n < 0 || n > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	frame := append(head, make([]byte, n)...)
	_, err := io.ReadFull(r, frame[headerSize:])
	return frame, err
}

// decompress returns the body of a frame. compression is the one of STARTUP.
func decompress(frame []byte, compression string) ([]byte, error) {
	body := frame[headerSize:]
	if parseHeader(frame).Flags&flagCompressed == 0 {
		return body, nil
	}
	switch compression {
	case "snappy":
		return snappy.Decode(nil, body)
	case "lz4":
		if len(body) < 4 {
			return nil, errors.New("compressed body is too short")
		}
		n := binary.BigEndian.Uint32(body)
		if n > maxFrame {
			return nil, fmt.Errorf("compressed body of %d bytes", n)
		}
		out := make([]byte, n)
		if n == 0 {
			return out, nil
		}
		got, err := lz4.UncompressBlock(body[4:], out)
		return out[:got], err
	}
	return nil, fmt.Errorf("compressed frame with compression %q", compression)
}

// compress is the reverse for a request whose header has the flag set.
func compress(body []byte, compression string) ([]byte, error) {
	switch compression {
	case "snappy":
		return snappy.Encode(nil, body), nil
	case "lz4":
		out := make([]byte, 4+lz4.CompressBlockBound(len(body)))
		binary.BigEndian.PutUint32(out, uint32(len(body)))
		n, err := lz4.CompressBlock(body, out[4:], nil)
		if err != nil {
			return nil, err
		}
		if n == 0 { // does not shrink: one literal run
			return append(out[:4], lz4Literals(body)...), nil
		}
		return out[:4+n], nil
	}
	return nil, fmt.Errorf("compressed request with compression %q", compression)
}

// lz4Literals returns an LZ4 block with the bytes uncompressed.
func lz4Literals(b []byte) []byte {
	var out []byte
	if n := len(b); n < 15 {
		out = append(out, byte(n<<4))
	} else {
		out = append(out, 0xf0)
		for n -= 15; n >= 255; n -= 255 {
			out = append(out, 255)
		}
		out = append(out, byte((len(b)-15)%255))
	}
	return append(out, b...)
}
