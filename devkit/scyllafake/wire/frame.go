package wire

import "encoding/binary"

// HeaderSize is the size of a frame's header.
const HeaderSize = 9

// Opcode is the kind of a message.
type Opcode byte

// The messages.
const (
	OpError        Opcode = 0x00
	OpStartup      Opcode = 0x01
	OpReady        Opcode = 0x02
	OpAuthenticate Opcode = 0x03
	OpOptions      Opcode = 0x05
	OpSupported    Opcode = 0x06
	OpQuery        Opcode = 0x07
	OpResult       Opcode = 0x08
	OpPrepare      Opcode = 0x09
	OpExecute      Opcode = 0x0A
	OpRegister     Opcode = 0x0B
	OpEvent        Opcode = 0x0C
	OpBatch        Opcode = 0x0D
	OpAuthResponse Opcode = 0x0F
	OpAuthSuccess  Opcode = 0x10
)

// The flags of a header.
const (
	FlagCompressed    byte = 0x01
	FlagTracing       byte = 0x02
	FlagCustomPayload byte = 0x04
	FlagWarning       byte = 0x08
)

// EventStream is the stream of messages that the server sends without a request.
const EventStream int16 = -1

// Header is the head of a frame.
type Header struct {
	Version byte // with the direction bit
	Flags   byte
	Stream  int16
	Opcode  Opcode
	Length  int32
}

// ParseHeader parses a header; b has HeaderSize bytes.
func ParseHeader(b []byte) Header {
	_ = b[HeaderSize-1]
	return Header{
		Version: b[0],
		Flags:   b[1],
		Stream:  int16(binary.BigEndian.Uint16(b[2:])),
		Opcode:  Opcode(b[4]),
		Length:  int32(binary.BigEndian.Uint32(b[5:])),
	}
}

// Begin appends the header of a response to dst. Its length is set by End.
func Begin(dst []byte, version byte, stream int16, op Opcode) []byte {
	return append(dst, version|0x80, 0, byte(uint16(stream)>>8), byte(stream), byte(op), 0, 0, 0, 0)
}

// End sets the length of the frame that begins at frame[0] and ends with it,
// and adds to its header flags.
func End(frame []byte, flags byte) {
	frame[1] |= flags
	binary.BigEndian.PutUint32(frame[5:], uint32(len(frame)-HeaderSize))
}
