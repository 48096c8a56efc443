package golden

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"sync"
	"testing"
)

const dir = "../testdata/golden"

// scripted are the recordings made with scripts, frames the ones of drivers.
var (
	scripted = []string{
		"A", "A.2shards", "B", "C", "D", "E", "E.2shards", "F", "F.2shards", "F.1token", "F.4tokens", "F1.restart",
		"F3", "F4", "crash", "failures", "batchlog", "batchlog-generation", "cas-generation",
	}
	driven = []string{"reader-run", "writer-run", "reader-2shards", "reader-switch"}
)

// loaded keeps the recordings, which no test changes.
var loaded sync.Map // name → func() ([]*Case, error)

func load(t *testing.T, name string) []*Case {
	t.Helper()
	once, _ := loaded.LoadOrStore(name, sync.OnceValues(func() ([]*Case, error) { return Load(dir, name) }))
	cases, err := once.(func() ([]*Case, error))()
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

// The decoder must decode every recorded response as the recorder did.
func TestDecode_AgreesWithTheRecorder(t *testing.T) {
	t.Parallel()
	for _, name := range scripted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range load(t, name) {
				v := newView()
				for _, r := range c.Records {
					if r.Response == nil {
						continue
					}
					a, err := v.answer(r.Conn, r.Kind, r.Request, r.Response)
					if err != nil {
						t.Fatalf("%s %d: %v", c.Name, r.Step, err)
					}
					checkDecoded(t, c.Name, r.Step, a, r.Decoded)
				}
			}
		})
	}
}

// foreignTypes are parts of the recorder's names of types that are read as others here.
var foreignTypes = regexp.MustCompile(`udt gk_|\bcounter"`)

func checkDecoded(t *testing.T, name string, step int, a *Answer, recorded json.RawMessage) {
	t.Helper()
	if foreignTypes.Match(recorded) {
		return
	}
	want := new(Decoded)
	dec := json.NewDecoder(bytes.NewReader(recorded))
	if err := dec.Decode(want); err != nil {
		t.Fatal(err)
	}
	// Both through JSON, so that numbers are of one type.
	text, err := json.Marshal(Render(a))
	if err != nil {
		t.Fatal(err)
	}
	got := new(Decoded)
	if err := json.Unmarshal(text, got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(normal(got), normal(want)) {
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		t.Errorf("%s %d\n got %s\nwant %s", name, step, g, w)
	}
}

// normal makes absent and empty lists the same.
func normal(d *Decoded) *Decoded {
	if len(d.Columns) == 0 {
		d.Columns = nil
	}
	if len(d.Bind) == 0 {
		d.Bind = nil
	}
	if len(d.Rows) == 0 {
		d.Rows = nil
	}
	if len(d.PK) == 0 {
		d.PK = nil
	}
	return d
}

func TestFrames_Decode(t *testing.T) {
	t.Parallel()
	for _, name := range driven {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			frames, err := LoadFrames(dir, name)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range frames {
				if f.Dir != "response" && f.Dir != "event" {
					continue
				}
				a, err := Decode(f.Frame, "", nil)
				if err != nil {
					t.Fatalf("seq %d: %v", f.Seq, err)
				}
				checkDecoded(t, name, f.Seq, a, f.Decoded)
			}
		})
	}
}

// The masked form must be the recorder's own.
func TestMaskLog_AgreesWithTheRecorder(t *testing.T) {
	t.Parallel()
	logs := 0
	for _, name := range scripted {
		for _, c := range load(t, name) {
			for _, r := range c.Records {
				if r.Kind != "log" || r.Log == nil {
					continue
				}
				if foreignTypes.Match(r.Decoded) {
					continue
				}
				logs++
				a, err := Decode(r.Response, "", nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := MaskLog(a)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got, r.Log) {
					t.Errorf("%s %s %d\n got %q\nwant %q", name, c.Name, r.Step, got, r.Log)
				}
			}
		}
	}
	if logs < 100 {
		t.Errorf("%d logs seen, the recordings have more", logs)
	}
}
