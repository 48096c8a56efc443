package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func TestDateOrTime(t *testing.T) {
	t.Parallel()
	for text, tt := range map[string]struct {
		want time.Time
		day  bool
	}{
		"2026-01-02":                {time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), true},
		"2028-02-29":                {time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC), true},
		"24h":                       {noon.Add(-24 * time.Hour), false},
		"90m":                       {noon.Add(-90 * time.Minute), false},
		"0s":                        {noon, false},
		"2026-01-02T15:04:05Z":      {time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC), false},
		"2026-01-02T15:04:05.5Z":    {time.Date(2026, 1, 2, 15, 4, 5, 5e8, time.UTC), false},
		"2026-01-02T15:04:05+02:00": {time.Date(2026, 1, 2, 13, 4, 5, 0, time.UTC), false},
	} {
		got, day, err := DateOrTime(text, noon)
		if err != nil || !got.Equal(tt.want) || day != tt.day {
			t.Errorf("DateOrTime(%q) = %v, %v, %v, want %v, %v", text, got, day, err, tt.want, tt.day)
		}
	}
	for _, text := range []string{"", "-24h", "24", "1d", "2026-02-29", "2026-13-01", "02.01.2026", "2026-01-02 15:04:05", "2026-01-02T15:04:05", "yesterday"} {
		if got, _, err := DateOrTime(text, noon); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q: write a date such as 2026-01-02", text)) {
			t.Errorf("DateOrTime(%q) = %v, %v, want an error that shows the forms", text, got, err)
		}
	}
}

func TestListing_Span(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		l            Listing
		since, until time.Time
		err          string
	}{
		"no bounds":               {l: Listing{}},
		"since a day":             {l: Listing{Since: "2026-03-03"}, since: day},
		"until the end of a day":  {l: Listing{Until: "2026-03-03"}, until: day.AddDate(0, 0, 1)},
		"one whole day":           {l: Listing{Since: "2026-03-03", Until: "2026-03-03"}, since: day, until: day.AddDate(0, 0, 1)},
		"until a time, excluded":  {l: Listing{Until: "2026-03-03T01:00:00Z"}, until: day.Add(time.Hour)},
		"ages":                    {l: Listing{Since: "2h", Until: "1h"}, since: noon.Add(-2 * time.Hour), until: noon.Add(-time.Hour)},
		"a limit":                 {l: Listing{Limit: 5}},
		"since is wrong":          {l: Listing{Since: "x"}, err: `--since "x": write a date`},
		"until is wrong":          {l: Listing{Until: "x"}, err: `--until "x": write a date`},
		"the wrong way round":     {l: Listing{Since: "1h", Until: "2h"}, err: "--since 1h is not before --until 2h"},
		"an empty period":         {l: Listing{Since: "2026-03-03T00:00:00Z", Until: "2026-03-03T00:00:00Z"}, err: "is not before --until"},
		"a limit that is too low": {l: Listing{Limit: -1}, err: "--limit -1 must not be negative"},
	} {
		since, until, err := tt.l.Span(noon)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || !errors.As(err, new(UsageError)) {
				t.Errorf("%s: Span() = %v, want the error of usage %s", name, err, tt.err)
			}
			continue
		}
		if err != nil || !since.Equal(tt.since) || !until.Equal(tt.until) {
			t.Errorf("%s: Span() = %v, %v, %v, want %v, %v", name, since, until, err, tt.since, tt.until)
		}
	}
}

// parcel is an entry of the test's list.
type parcel struct {
	ID     string    `json:"id"`
	Status string    `json:"status"`
	At     time.Time `json:"at"`
	Note   string    `json:"note,omitempty"`
}

// list runs a command that lists parcels.
func list(t *testing.T, found []parcel, next string, first string, args ...string) (out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	var output string
	root := NewRoot("x", "", "", &o, &e)
	cmd := &cobra.Command{Use: "list", RunE: func(cmd *cobra.Command, _ []string) error {
		return Table[parcel]{
			Header: "ID\tSTATUS\tAT\tNOTE", Wide: 1, None: "no parcels", First: first,
			Row: func(w io.Writer, p parcel) { fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.ID, p.Status, At(w, p.At), p.Note) },
		}.Print(cmd, output, found, next)
	}}
	ListFlags(cmd, &output)
	root.AddCommand(cmd)
	if code := Execute(root, append([]string{"list"}, args...), &e); code != ExitOK {
		t.Fatalf("%v: status %d: %s", args, code, e.String())
	}
	return o.String(), e.String()
}

func TestTable_Print(t *testing.T) {
	t.Parallel()
	found := []parcel{{ID: "p-1", Status: "failed", At: noon, Note: "fragile"}, {ID: "p-22", Status: "resolved"}}
	for name, tt := range map[string]struct {
		args        []string
		found       []parcel
		next        string
		first       string
		out, errOut string
	}{
		"columns are aligned, wide ones left out": {found: found, out: "" +
			"ID    STATUS    AT\n" +
			"p-1   failed    2026-03-04 12:00:00Z\n" +
			"p-22  resolved  -\n"},
		"wide": {args: []string{"--wide"}, found: found, out: "" +
			"ID    STATUS    AT                    NOTE\n" +
			"p-1   failed    2026-03-04 12:00:00Z  fragile\n" +
			"p-22  resolved  -                     \n"},
		"there are more": {found: found[1:], next: "c.d", out: "ID    STATUS    AT\np-22  resolved  -\n", errOut: "only the newest 1; --limit 0 shows all, --cursor c.d the next ones\n"},
		"in another order": {
			found: found[1:], next: "c.d", first: "oldest", out: "ID    STATUS    AT\np-22  resolved  -\n", errOut: "only the oldest 1; --limit 0 shows all, --cursor c.d the next ones\n",
		},
		"nothing": {errOut: "no parcels\n"},
		"JSON": {args: []string{"-o", "json"}, found: found[:1], next: "c.d", out: `{
  "items": [
    {
      "id": "p-1",
      "status": "failed",
      "at": "2026-03-04T12:00:00Z",
      "note": "fragile"
    }
  ],
  "next": "c.d"
}
`},
		"YAML":           {args: []string{"--output", "yaml"}, found: found[:1], out: "items:\n  - id: p-1\n    status: failed\n    at: \"2026-03-04T12:00:00Z\"\n    note: fragile\n"},
		"nothing, JSON":  {args: []string{"-o", "json"}, out: "{\n  \"items\": []\n}\n"},
		"nothing, YAML":  {args: []string{"-o", "yaml"}, out: "items: []\n"},
		"wide, but JSON": {args: []string{"-o", "json", "--wide"}, out: "{\n  \"items\": []\n}\n"},
	} {
		out, errOut := list(t, tt.found, tt.next, tt.first, tt.args...)
		if out != tt.out || errOut != tt.errOut {
			t.Errorf("%s: it prints\n%s%s, want\n%s%s", name, out, errOut, tt.out, tt.errOut)
		}
	}
}

// YAML has the keys and types of JSON: texts that would parse as other types are quoted.
func TestPrintAs_KeepsTypes(t *testing.T) {
	t.Parallel()
	v := map[string]any{"a": "true", "b": true, "c": "12", "d": 12, "e": nil, "f": "null", "g": []int{1}, "h": map[string]any{}, "i": "line\nline", "j": "x: y"}
	var b bytes.Buffer
	if err := PrintAs(&b, "yaml", v); err != nil {
		t.Fatal(err)
	}
	want := `a: "true"
b: true
c: "12"
d: 12
e: null
f: "null"
g:
  - 1
h: {}
i: |-
  line
  line
j: 'x: y'
`
	if b.String() != want {
		t.Errorf("PrintAs() =\n%s, want\n%s", b.String(), want)
	}
	if err := PrintAs(&b, "json", func() {}); err == nil {
		t.Error("a value that JSON cannot contain is printed")
	}
}

// Text of unknown origin cannot control the terminal.
func TestClean(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"plain", 0, "plain"},
		{"größer 日本", 0, "größer 日本"},
		{"a\x1b[31mred", 0, "a·[31mred"},
		{"one\ntwo\ttabs\r", 0, "one·two·tabs·"},
		{"nul\x00 del\x7f c1\u009b", 0, "nul· del· c1·"},
		{"right\u202eto left", 0, "right·to left"},
		{"zero\u200bwidth \ufeff", 0, "zero·width ·"},
		{"bad \xff utf", 0, "bad · utf"},
		{"abcdef", 6, "abcdef"},
		{"abcdefg", 6, "abcde…"},
		{"日本語日本語", 3, "日本…"},
		{"ab", 1, "…"},
		{"", 3, ""},
	} {
		if got := Clean(tt.text, tt.n); got != tt.want {
			t.Errorf("Clean(%q, %d) = %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
}

func TestRelative(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s ago", 59 * time.Second: "59s ago", time.Minute: "1m ago", 59*time.Minute + 59*time.Second: "59m ago",
		time.Hour: "1h ago", 47 * time.Hour: "47h ago", 48 * time.Hour: "2d ago", 400 * 24 * time.Hour: "400d ago",
		-time.Second: "in 1s", -90 * time.Minute: "in 1h", -72 * time.Hour: "in 3d",
	} {
		if got := relative(d); got != want {
			t.Errorf("relative(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestFieldsOn(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := NewColumns(&b)
	field := FieldsOn(w)
	field("Name", "outbox")
	field("Empty", "")
	field("Longer name", 7)
	field("Error", "bad\x1b[2J")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "Name         outbox\nLonger name  7\nError        bad·[2J\n"; b.String() != want {
		t.Errorf("the fields are\n%s, want\n%s", b.String(), want)
	}
}

// Progress in a file has a line now and then, and a last one with the average rate.
func TestProgress_OfAFile(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := NewProgress(&b, nil)
	for _, tt := range []struct {
		work Work
		want string
	}{
		{Work{Done: 5}, "5  7/s\n"},
		{Work{Done: 5, Detail: "2 failed"}, "5  7/s  2 failed\n"},
		{Work{Done: 0, Total: 10}, "[" + strings.Repeat("·", 30) + "] 0/10  7/s\n"},
		{Work{Done: 5, Total: 10}, "[" + strings.Repeat("█", 15) + strings.Repeat("·", 15) + "] 5/10  7/s\n"},
		{Work{Done: 10, Total: 10}, "[" + strings.Repeat("█", 30) + "] 10/10  7/s\n"},
		{Work{Done: 12, Total: 10}, "[" + strings.Repeat("█", 30) + "] 12/10  7/s\n"},
	} {
		b.Reset()
		p.Draw(tt.work, 7.4, false)
		if b.String() != tt.want {
			t.Errorf("Draw(%+v) prints %q, want %q", tt.work, b.String(), tt.want)
		}
	}
}
