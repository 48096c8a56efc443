package golden

import (
	"bytes"
	"testing"
)

// A request rewritten with its own ids is the recorded frame again.
func TestRequest_RewriteIsFaithful(t *testing.T) {
	t.Parallel()
	same := func(b []byte) []byte { return b }
	for _, name := range scripted {
		for _, c := range load(t, name) {
			for _, r := range c.Records {
				switch r.Kind {
				case "query", "prepare", "execute", "batch", "log", "poll", "await":
				default:
					continue
				}
				if r.Cut != "" || parseHeader(r.Request).Flags&flagCompressed != 0 {
					continue
				}
				q, err := parseRequest(r.Request, "", false)
				if err != nil {
					t.Fatalf("%s %s %d: %v", name, c.Name, r.Step, err)
				}
				got, err := q.rewrite(same, same, "")
				if err != nil || !bytes.Equal(got, r.Request) {
					t.Errorf("%s %s %d: rewritten to\n%x (%v), recorded\n%x", name, c.Name, r.Step, got, err, []byte(r.Request))
				}
			}
		}
	}
}

func TestRequest_ExchangesIDsAndStates(t *testing.T) {
	t.Parallel()
	q := &request{
		header: header{Version: 4, Opcode: opExecute},
		body:   []byte{0, 2, 'i', 'd', 0, 1, withPagingState, 0, 0, 0, 1, 's'},
	}
	parsed, err := parseRequest(q.header.frame(q.body), "", false)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parsed.rewrite(
		func(id []byte) []byte { return append([]byte("new-"), id...) },
		func([]byte) []byte { return []byte("other") }, "")
	want := q.header.frame([]byte{0, 6, 'n', 'e', 'w', '-', 'i', 'd', 0, 1, withPagingState, 0, 0, 0, 5, 'o', 't', 'h', 'e', 'r'})
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("rewrite() = %x, %v, want %x", got, err, want)
	}
}

// The values of EXECUTE requests must equal the recorded text.
func TestParseValues_AgreesWithTheFrames(t *testing.T) {
	t.Parallel()
	n := 0
	for _, name := range scripted {
		for _, c := range load(t, name) {
			for _, r := range c.Records {
				if r.Kind != "execute" || r.Values == "" || r.Cut != "" || r.Options["compress"] != "" {
					continue
				}
				values, err := ParseValues(r.Values)
				if err != nil {
					t.Errorf("%s %d: ParseValues(%s): %v", c.Name, r.Step, r.Values, err)
					continue
				}
				if values[0].Name != "" {
					continue // names are between the values in the frame
				}
				if encoded := appendValues(nil, values); !bytes.Contains(r.Request, encoded) {
					t.Errorf("%s %d: the frame does not hold the values %s (%x)", c.Name, r.Step, r.Values, encoded)
				}
				n++
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d requests with values", n)
	}
}

// A truncated request is rebuilt with its original length.
func TestRestore(t *testing.T) {
	t.Parallel()
	n := 0
	for _, name := range scripted {
		for _, c := range load(t, name) {
			ids := map[string][]byte{}
			for _, r := range c.Records {
				if r.Kind == "prepare" {
					if a, err := Decode(r.Response, "", nil); err == nil {
						ids[r.CQL] = a.ID
					}
				}
				if r.Cut == "" {
					continue
				}
				n++
				got, err := restore(r, func(text string) []byte { return ids[text] })
				if err != nil {
					t.Fatalf("%s %d: %v", c.Name, r.Step, err)
				}
				if want := headerSize + parseHeader(r.Request).Length; len(got) != want || !bytes.HasPrefix(got, r.Request[:headerSize]) ||
					!bytes.HasPrefix(got[headerSize:], r.Request[headerSize:]) {
					t.Errorf("%s %d: restored %d bytes %x, want %d bytes %x", c.Name, r.Step, len(got), got[:64], want, []byte(r.Request[:64]))
				}
			}
		}
	}
	if n == 0 {
		t.Error("nothing was cut")
	}
}
