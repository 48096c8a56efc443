package brokerstate

import (
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// windowsFile is seq_windows.json.
type windowsFile struct {
	Version int      `json:"version"`
	Windows []window `json:"windows"`
}

// window is kfake's state of one producer in one partition.
type window struct {
	PID   int64  `json:"pid"`
	Topic string `json:"topic"`
	Part  int32  `json:"partition"`

	// Entries are the last batches, Count of them, in a ring whose next position is At.
	Entries [5]entry `json:"entries,omitempty"`
	Count   uint8    `json:"count,omitempty"`

	// Seq and Offsets are an older format that kfake still reads.
	Seq     [5]int32 `json:"seq,omitempty"`
	Offsets [5]int64 `json:"offsets,omitempty"`

	At      uint8 `json:"at"`
	Epoch   int16 `json:"epoch"`
	Seen    bool  `json:"seen,omitempty"`
	NextSeq int32 `json:"next_seq,omitempty"`
}

// entry is one batch.
type entry struct {
	FirstSeq int32 `json:"first_seq"`
	NextSeq  int32 `json:"next_seq"`
	Offset   int64 `json:"offset"`
}

// push adds a batch of the log, as kfake did when it arrived.
func (w *window) push(b *kmsg.RecordBatch) {
	if !w.Seen || b.ProducerEpoch != w.Epoch { // a new epoch counts from 0 again
		w.Seen, w.Epoch = true, b.ProducerEpoch
		w.Entries, w.At, w.Count = [5]entry{}, 0, 0
	}
	w.NextSeq = int32((int64(b.FirstSequence) + int64(b.NumRecords)) % math.MaxInt32)
	w.Entries[w.At] = entry{FirstSeq: b.FirstSequence, NextSeq: w.NextSeq, Offset: b.FirstOffset}
	w.At = (w.At + 1) % uint8(len(w.Entries))
	w.Count = min(w.Count+1, uint8(len(w.Entries)))
}

// last returns the offset of the newest batch in w, -1 if none.
func (w *window) last() int64 {
	last := int64(-1)
	if w.Count == 0 && w.Seq != [5]int32{} {
		for _, o := range w.Offsets {
			last = max(last, o)
		}
	}
	for _, e := range w.Entries[:min(int(w.Count), len(w.Entries))] {
		last = max(last, e.Offset)
	}
	return last
}
