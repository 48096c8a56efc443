package verify

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
)

// journal is the state file of a verification: blocks of the rows and records that were
// read, from which another run fills its ledger and resumes. A block is its length, its
// checksum, and a blockData in JSON. An incomplete last block is removed.
type journal struct {
	mu sync.Mutex
	f  *os.File
}

// blockData is one block; one of its fields is set.
type blockData struct {
	Head  *head       `json:",omitempty"`
	Range *Range      `json:",omitempty"`
	Read  *readTopics `json:",omitempty"`
	Batch *Batch      `json:",omitempty"`
}

// head describes the verification. Runs with another head cannot resume from the file.
type head struct {
	Version      int
	Table        string
	TableID      string
	Ranges       int
	Since, Until int64 // microseconds, 0 for none
}

// readTopics are the topics that are read and their ids.
type readTopics struct{ IDs map[string]string }

const (
	journalVersion = 4
	// maxBlock bounds the read of a block with a corrupt length.
	maxBlock = 1 << 30
)

// ErrOtherState is wrapped by errors about a state file that belongs to another
// verification or is not a state file.
var ErrOtherState = errors.New("the state file belongs to another verification")

// openJournal opens or creates the file, passes every complete block to replay, and
// truncates the rest.
func openJournal(path string, replay func(blockData) error) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	end, err := readBlocks(f, replay)
	if err == nil {
		if err = f.Truncate(end); err == nil {
			_, err = f.Seek(end, io.SeekStart)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("state file %s: %w", path, err), f.Close())
	}
	return &journal{f: f}, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readBlocks returns the end of the last complete block.
func readBlocks(f *os.File, replay func(blockData) error) (end int64, err error) {
	in := bufio.NewReaderSize(f, 1<<20)
	for first := true; ; first = false {
		var lead [8]byte
		if _, err := io.ReadFull(in, lead[:]); err != nil {
			if first && errors.Is(err, io.ErrUnexpectedEOF) {
				return 0, fmt.Errorf("%w: it has no head", ErrOtherState)
			}
			return end, nil
		}
		size := binary.LittleEndian.Uint32(lead[:4])
		body := make([]byte, min(size, maxBlock))
		_, err := io.ReadFull(in, body)
		whole := err == nil && size <= maxBlock && crc32.Checksum(body, castagnoli) == binary.LittleEndian.Uint32(lead[4:])
		var b blockData
		if whole {
			whole = json.Unmarshal(body, &b) == nil
		}
		switch {
		case first && (!whole || b.Head == nil):
			return 0, fmt.Errorf("%w: it has no head", ErrOtherState)
		case !whole:
			return end, nil
		}
		if err := replay(b); err != nil {
			return 0, err
		}
		end += int64(len(lead)) + int64(size)
	}
}

// add appends a block. It is safe for concurrent use.
func (j *journal) add(b blockData) error {
	if j == nil {
		return nil
	}
	body, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	block := append(make([]byte, 8, 8+len(body)), body...)
	binary.LittleEndian.PutUint32(block[:4], uint32(len(block)-8))
	binary.LittleEndian.PutUint32(block[4:8], crc32.Checksum(block[8:], castagnoli))
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.f.Write(block); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	return nil
}

// close closes the file, and removes it if the verification is finished.
func (j *journal) close(finished bool) error {
	if j == nil {
		return nil
	}
	err := j.f.Close()
	if finished {
		err = errors.Join(err, os.Remove(j.f.Name()))
	}
	return err
}
