package cqltype

import "encoding/binary"

// Gregorian is the Unix epoch in 100 ns units since 15 October 1582, where the
// time of a version 1 uuid begins.
const Gregorian = 0x01B21DD213814000

// NewTimeUUID returns the version 1 uuid of a time in 100 ns since 1582, as Gregorian is, with the
// given low eight bytes.
func NewTimeUUID(ticks, low uint64) (u [16]byte) {
	ticks &= 1<<60 - 1
	binary.BigEndian.PutUint32(u[0:], uint32(ticks))
	binary.BigEndian.PutUint16(u[4:], uint16(ticks>>32))
	binary.BigEndian.PutUint16(u[6:], uint16(ticks>>48)|0x1000)
	binary.BigEndian.PutUint64(u[8:], low)
	return u
}

// TimeUUIDAt returns the version 1 uuid of a time in microseconds since 1970 with the
// given low eight bytes. It sets no variant in them, as ScyllaDB does not.
func TimeUUIDAt(micros int64, low uint64) [16]byte {
	return NewTimeUUID(uint64(micros*10+Gregorian), low)
}

// TimeUUIDMicros returns the time of a version 1 uuid in microseconds since 1970,
// rounded down; v must have 16 bytes.
func TimeUUIDMicros(v []byte) int64 { return floorDiv(int64(uuidTime(v))-Gregorian, 10) }

// TimeUUIDMillis is TimeUUIDMicros in milliseconds.
func TimeUUIDMillis(v []byte) int64 { return floorDiv(int64(uuidTime(v))-Gregorian, 10000) }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
