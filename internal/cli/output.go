package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"
)

// formats are the values of --output, of every command.
var formats = []string{"table", "json", "yaml"}

// OutputFlag adds --output (-o) with the default table, and its completion. Another value is an
// error of usage, and the command does not run.
func OutputFlag(cmd *cobra.Command, output *string) {
	cmd.PreRunE = func(*cobra.Command, []string) error { return CheckChoice("output", *output, formats...) }
	cmd.Flags().StringVarP(output, "output", "o", formats[0], "table, json or yaml")
	if err := cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is defined above
	}
}

// ListFlags adds the flags of a command that prints a Table: OutputFlag and --wide.
func ListFlags(cmd *cobra.Command, output *string) {
	OutputFlag(cmd, output)
	cmd.Flags().Bool("wide", false, "print all columns, and times in full")
}

// Show prints v in the format of OutputFlag: as JSON or YAML, or as a table by text.
func Show(w io.Writer, output string, v any, text func(io.Writer) error) error {
	if output != "table" {
		return PrintAs(w, output, v)
	}
	return text(w)
}

// PrintAs prints v as json or yaml.
func PrintAs(w io.Writer, format string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if format == "yaml" {
		// JSON is YAML: only its style changes, and both have the same keys.
		var node yaml.Node
		if err := yaml.Unmarshal(b, &node); err != nil {
			return err
		}
		plainStyle(&node)
		var out bytes.Buffer
		enc := yaml.NewEncoder(&out)
		enc.SetIndent(2)
		if err := enc.Encode(&node); err != nil {
			return err
		}
		b = bytes.TrimRight(out.Bytes(), "\n")
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}

// plainStyle removes the quotes and brackets of JSON.
func plainStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		plainStyle(c)
	}
}

// ListTime is the format of times in lists. The times are UTC.
const ListTime = "2006-01-02 15:04:05Z"

// NewColumns returns a writer that aligns tab-separated cells as columns. The caller flushes
// it.
func NewColumns(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// FieldsOn returns a function that writes the name and the value of a field as a line of
// columns. It omits a value whose text is empty.
func FieldsOn(columns io.Writer) func(name string, value any) {
	return func(name string, value any) {
		if text := fmt.Sprint(value); text != "" {
			fmt.Fprintf(columns, "%s\t%s\n", name, Clean(text, 0))
		}
	}
}

// Table describes how a command prints a list.
type Table[T any] struct {
	// Header contains the names of the columns, and Row writes the cells of one entry, with
	// tabs between them. At formats its times.
	Header string
	Row    func(io.Writer, T)
	// Wide is the number of the last columns, which only --wide prints.
	Wide int
	// None is the text of an empty list.
	None string
	// First is the order of the list in words. Default "newest".
	First string
}

// listView is a list as JSON or YAML: an object, so that it can get more fields.
type listView[T any] struct {
	Items []T `json:"items"`
	// Next is the --cursor of the next page, absent on the last one.
	Next string `json:"next,omitempty"`
}

// Print prints a page of entries in a format of OutputFlag. next is the cursor of the next page, empty on the last one. Notes that the list is empty or incomplete are written to the
// standard error.
func (t Table[T]) Print(cmd *cobra.Command, output string, found []T, next string) error {
	out, errOut := cmd.OutOrStdout(), cmd.ErrOrStderr()
	if output != "table" {
		return PrintAs(out, output, listView[T]{Items: append([]T{}, found...), Next: next})
	}
	if len(found) == 0 {
		_, err := fmt.Fprintln(errOut, t.None)
		return err
	}
	w := &rows{out: out, cut: t.Wide, now: time.Now()}
	w.colour, w.relative = hasColours(isTerminal(out)), isTerminal(out)
	if wide, err := cmd.Flags().GetBool("wide"); err == nil && wide {
		w.cut, w.relative = 0, false
	}
	fmt.Fprintln(w, t.Header)
	for _, x := range found {
		t.Row(w, x)
	}
	if err := w.print(); err != nil {
		return err
	}
	if next != "" {
		fmt.Fprintf(errOut, "only the %s %d; --limit 0 shows all, --cursor %s the next ones\n", cmp.Or(t.First, "newest"), len(found), next)
	}
	return nil
}

// rows are the lines of a table: the header, then its entries.
type rows struct {
	out              io.Writer
	cut              int  // number of the last columns that are left out
	colour, relative bool // of a terminal
	now              time.Time
	text             bytes.Buffer
}

// Write adds lines.
func (r *rows) Write(p []byte) (int, error) { return r.text.Write(p) }

// print prints the lines as columns.
func (r *rows) print() error {
	var aligned bytes.Buffer
	tw := NewColumns(&aligned)
	var lines [][]string
	for line := range strings.Lines(r.text.String()) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		cells = cells[:max(1, len(cells)-r.cut)]
		lines = append(lines, cells)
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(aligned.String()) {
		if r.colour {
			line = colour(line, lines[n], n == 0)
		}
		if _, err := io.WriteString(r.out, line); err != nil {
			return err
		}
		n++
	}
	return nil
}

// colours maps the words of states to the numbers of colours: red, yellow and green.
var colours = map[string]int{
	"failed": 31, "silent": 31, "cancelled": 31,
	"suspended": 33, "blocked": 33, "paused": 33, "pending": 33, "processing": 33, "queued": 33,
	"resolved": 32, "finished": 32, "delivered": 32, "active": 32, "running": 32,
}

// colour returns an aligned line with a bold header and the state of an entry in its colour.
// Cells contain no control characters.
func colour(line string, cells []string, header bool) string {
	if header {
		return "\x1b[1m" + strings.TrimSuffix(line, "\n") + "\x1b[0m\n"
	}
	for _, cell := range cells {
		word, _, _ := strings.Cut(cell, " ")
		if c, ok := colours[word]; ok {
			return strings.Replace(line, "  "+cell, fmt.Sprintf("  \x1b[%dm%s\x1b[0m", c, cell), 1)
		}
	}
	return line
}

// hasColours reports whether output has colours: not elsewhere than on a terminal that has them,
// nor with NO_COLOR (https://no-color.org).
func hasColours(terminal bool) bool {
	return terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Redraw writes a page in place of the previous one on a terminal, and after it, with an empty
// line between them, elsewhere.
func Redraw(w io.Writer, page []byte) error {
	if isTerminal(w) {
		page = append([]byte("\x1b[H\x1b[2J"), page...)
	} else {
		page = append(page, '\n')
	}
	_, err := w.Write(page)
	return err
}

// At returns a time of a row of a Table that writes to w: relative to now on a terminal, and
// otherwise in UTC. The zero time is a dash.
func At(w io.Writer, t time.Time) string {
	r, ok := w.(*rows)
	switch {
	case t.IsZero():
		return "-"
	case ok && r.relative:
		return relative(r.now.Sub(t))
	}
	return t.UTC().Format(ListTime)
}

// relative returns a distance from now, negative in the future, in its largest unit.
func relative(d time.Duration) string {
	text, ago := "", d >= 0
	switch d = d.Abs(); {
	case d < time.Minute:
		text = fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		text = fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		text = fmt.Sprintf("%dh", int(d.Hours()))
	default:
		text = fmt.Sprintf("%dd", int(d.Hours()/24))
	}
	if ago {
		return text + " ago"
	}
	return "in " + text
}

// Clean returns text of unknown origin without control characters, which could control the
// terminal, and with at most n characters; 0 is no limit.
func Clean(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.Is(unicode.C, r) {
			return '·'
		}
		return r
	}, s)
	if r := []rune(s); n > 0 && len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
