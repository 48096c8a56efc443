package golden

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"regexp"
	"strconv"
	"time"
)

// own maps values of tablets that the recorded node chose to those of this run, as the
// answers show them: stream ids by their random bits, starts of generations by the clock.
type own struct {
	streams [][2][]byte
	starts  [][2]int64 // ms
}

// generationTolerance is the largest difference between starts of one generation.
const generationTolerance = time.Second

// value compares values of columns that contain such values; is reports whether it does.
func (o *own) value(col Column, want, got []byte) (same, is bool) {
	switch {
	case (col.Name == "stream_id" || col.Name == "cdc$stream_id") && isTabletStream(want) && isTabletStream(got):
		if !bytes.Equal(want[:8], got[:8]) {
			return false, true
		}
		for _, s := range o.streams {
			if bytes.Equal(s[0], want) {
				return bytes.Equal(s[1], got), true
			}
		}
		if col.Name == "stream_id" { // the rows of a log may be in another order
			o.streams = append(o.streams, [2][]byte{want, got})
		}
		return true, true
	case col.Name == "timestamp" && (col.Table == "cdc_timestamps" || col.Table == "cdc_streams") && len(want) == 8 && len(got) == 8:
		w, g := be64(want), be64(got)
		for _, s := range o.starts {
			if s[0] == w {
				return s[1] == g, true
			}
		}
		o.starts = append(o.starts, [2]int64{w, g})
		return near(w, g, generationTolerance.Milliseconds()), true
	}
	return false, false
}

// isTabletStream reports whether a stream id is one of tablets: its index is 0.
func isTabletStream(id []byte) bool {
	return len(id) == 16 && binary.BigEndian.Uint64(id[8:])&(1<<26-1) == 1
}

var numbers = regexp.MustCompile(`\d{13,16}`)

// Own replaces the recorded values in a request by those of this run: stream ids in
// binary and hexadecimal form, and times in ms or within 1 ms in µs.
func (d *Diff) Own(body []byte) []byte {
	for _, s := range d.own.streams {
		body = bytes.ReplaceAll(body, s[0], s[1])
		body = bytes.ReplaceAll(body, []byte(hex.EncodeToString(s[0])), []byte(hex.EncodeToString(s[1])))
	}
	for _, s := range d.own.starts {
		body = bytes.ReplaceAll(body, binary.BigEndian.AppendUint64(nil, uint64(s[0])), binary.BigEndian.AppendUint64(nil, uint64(s[1])))
		for i := range max(len(body)-7, 0) { // timestamps of statements
			if n := be64(body[i : i+8]); near(n, s[0]*1000, 1000) {
				binary.BigEndian.PutUint64(body[i:], uint64(n+(s[1]-s[0])*1000))
			}
		}
		body = numbers.ReplaceAllFunc(body, func(text []byte) []byte {
			n, _ := strconv.ParseInt(string(text), 10, 64) //nolint:errcheck // it is a number
			switch {
			case n == s[0]:
				n = s[1]
			case near(n, s[0]*1000, 1000):
				n += (s[1] - s[0]) * 1000
			}
			return strconv.AppendInt(nil, n, 10)
		})
	}
	return body
}
