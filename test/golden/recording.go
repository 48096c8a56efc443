package golden

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Bytes is written in hexadecimal in the recordings.
type Bytes []byte

// UnmarshalJSON reads a string of hexadecimal digits.
func (b *Bytes) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	v, err := hex.DecodeString(s)
	*b = v
	return err
}

// Record is one line of a scripted recording.
type Record struct {
	Case     string            `json:"case"`
	Step     int               `json:"step"`
	Kind     string            `json:"kind"`
	Conn     string            `json:"conn"`
	CQL      string            `json:"cql"`
	Values   string            `json:"values"`
	Options  map[string]string `json:"options"`
	SentMS   float64           `json:"sent_ms"`
	GotMS    float64           `json:"got_ms"`
	Arrival  int               `json:"arrival"`
	Request  Bytes             `json:"request"`
	Response Bytes             `json:"response"`
	Cut      string            `json:"cut"`
	Decoded  json.RawMessage   `json:"decoded"`
	Log      []string          `json:"log"`
	Info     Info              `json:"info"`
}

// Info is step 1 of a case, which describes it.
type Info struct {
	// T is the time at the start of the case, µs since 1970.
	T        int64  `json:"T"`
	Keyspace string `json:"keyspace"`
}

// Case is the records of one case, in the order in which they happened.
type Case struct {
	// File is the recording's name without its ending, "C" or "E.2shards".
	File    string
	Name    string
	Info    Info
	Records []*Record
}

// Frame is one line of a recording of a driver's own frames (reader-*, writer-*).
type Frame struct {
	Conn    int             `json:"conn"`
	Seq     int             `json:"seq"`
	AtMS    float64         `json:"at_ms"`
	Dir     string          `json:"dir"` // open, request, response, event, close
	Stream  int             `json:"stream"`
	Frame   Bytes           `json:"frame"`
	Decoded json.RawMessage `json:"decoded"`
}

// Load reads the scripted recording NAME.jsonl.gz of a folder.
func Load(dir, name string) ([]*Case, error) {
	var cases []*Case
	err := eachLine(filepath.Join(dir, name+".jsonl.gz"), func(line []byte) error {
		r := new(Record)
		if err := json.Unmarshal(line, r); err != nil {
			return err
		}
		if len(cases) == 0 || cases[len(cases)-1].Name != r.Case {
			cases = append(cases, &Case{File: name, Name: r.Case, Info: r.Info})
		}
		c := cases[len(cases)-1]
		c.Records = append(c.Records, r)
		return nil
	})
	return cases, err
}

// at returns the time of a client's action: it sent a request, or received an event.
// Events of a statement come between its request and the next.
func (r *Record) at() float64 {
	if r.Kind == "event" || r.Kind == "connect" {
		return r.GotMS
	}
	return r.SentMS
}

// LoadFrames reads the recording of frames NAME.jsonl.gz of a folder.
func LoadFrames(dir, name string) ([]*Frame, error) {
	var frames []*Frame
	err := eachLine(filepath.Join(dir, name+".jsonl.gz"), func(line []byte) error {
		f := new(Frame)
		frames = append(frames, f)
		return json.Unmarshal(line, f)
	})
	return frames, err
}

func eachLine(path string, f func([]byte) error) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	z, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if err := f(line); err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	return nil
}
