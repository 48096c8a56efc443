package brokerstate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// formatVersion is the supported version of kfake's files.
const formatVersion = 1

// ErrFormat means that a data directory has an unknown format. Nothing in it was
// changed.
var ErrFormat = errors.New("unknown format of the broker's data directory")

// id names a window.
type id struct {
	pid   int64
	topic string
	part  int32
}

// Recover updates seq_windows.json in kfake's data directory from the log and returns
// the number of windows in which the log was ahead. It changes nothing else, and
// nothing at all after a clean close or in a directory that kfake has not used. It
// reads each segment once, as kfake itself does next.
//
// The broker must not be running. A producer without an id of kfake, because it began
// with another broker or before the directory was emptied, stays unknown: kfake skips
// its window.
func Recover(dir string) (int, error) {
	found, err := checkMeta(filepath.Join(dir, "meta.json"))
	if err != nil || !found {
		return 0, err
	}
	path := filepath.Join(dir, "seq_windows.json")
	file, err := readWindows(path)
	if err != nil {
		return 0, err
	}
	log, ends, err := readLog(filepath.Join(dir, "partitions"))
	if err != nil {
		return 0, err
	}
	ahead := 0
	for i := range file.Windows {
		w := &file.Windows[i]
		at := id{w.PID, w.Topic, w.Part}
		l, ok := log[at]
		if !ok {
			continue
		}
		delete(log, at)
		// A window beyond the end belongs to a topic that has been deleted.
		if l.last() > w.last() || w.last() >= ends[id{topic: w.Topic, part: w.Part}] {
			*w = *l
			ahead++
		}
	}
	for _, l := range log {
		file.Windows = append(file.Windows, *l)
		ahead++
	}
	if ahead == 0 {
		return 0, nil
	}
	slices.SortFunc(file.Windows, func(a, b window) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Part, b.Part), cmp.Compare(a.PID, b.PID))
	})
	return ahead, write(path, file)
}

// checkMeta reports whether kfake has used the directory, in the supported format.
func checkMeta(path string) (found bool, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var meta struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &meta); err != nil {
		return false, fmt.Errorf("%w: %s: %w", ErrFormat, path, err)
	}
	if meta.Version != formatVersion {
		return false, fmt.Errorf("%w: %s: version %d, want %d", ErrFormat, path, meta.Version, formatVersion)
	}
	return true, nil
}

// readWindows reads seq_windows.json; without that file there are none.
func readWindows(path string) (windowsFile, error) {
	file := windowsFile{Version: formatVersion}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return file, nil
	}
	if err != nil {
		return file, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields() // unknown fields would be lost
	if err := dec.Decode(&file); err != nil {
		return file, fmt.Errorf("%w: %s: %w", ErrFormat, path, err)
	}
	if file.Version != formatVersion {
		return file, fmt.Errorf("%w: %s: version %d, want %d", ErrFormat, path, file.Version, formatVersion)
	}
	return file, nil
}

// readLog reads all partitions: their windows, and their end offsets by topic
// and partition.
func readLog(dir string) (log map[id]*window, ends map[id]int64, err error) {
	log, ends = make(map[id]*window), make(map[id]int64)
	parts, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return log, ends, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, p := range parts {
		if !p.IsDir() {
			continue
		}
		topic, part, err := partition(p.Name())
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %s: %w", ErrFormat, filepath.Join(dir, p.Name()), err)
		}
		segments, err := listSegments(filepath.Join(dir, p.Name()))
		if err != nil {
			return nil, nil, err
		}
		for _, s := range segments {
			err := readSegment(s, func(b *kmsg.RecordBatch) {
				end := id{topic: topic, part: part}
				ends[end] = max(ends[end], b.FirstOffset+1)
				if b.ProducerID < 0 || b.Attributes&control != 0 {
					return
				}
				at := id{b.ProducerID, topic, part}
				w, ok := log[at]
				if !ok {
					w = &window{PID: b.ProducerID, Topic: topic, Part: part}
					log[at] = w
				}
				w.push(b)
			})
			if err != nil {
				return nil, nil, fmt.Errorf("read segment %s: %w", s, err)
			}
		}
	}
	return log, ends, nil
}

// partition parses the name of a partition's directory.
func partition(name string) (topic string, part int32, err error) {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return "", 0, errors.New("no partition number")
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil {
		return "", 0, err
	}
	topic, err = url.PathUnescape(name[:i])
	return topic, int32(n), err
}

// listSegments lists the segment files in a directory by their first offset.
func listSegments(dir string) ([]string, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var bases []int64
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".dat"); ok {
			if base, err := strconv.ParseInt(name, 10, 64); err == nil {
				bases = append(bases, base)
			}
		}
	}
	slices.Sort(bases)
	paths := make([]string, 0, len(bases))
	for _, base := range bases {
		paths = append(paths, filepath.Join(dir, strconv.FormatInt(base, 10)+".dat"))
	}
	return paths, nil
}

// write replaces the file in one step: a crash in between leaves the old one.
func write(path string, file windowsFile) error {
	b, err := json.Marshal(file)
	if err != nil {
		return err
	}
	// kfake removes a leftover file with this ending.
	if err := os.WriteFile(path+".tmp", b, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
