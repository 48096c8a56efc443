package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// OutputFlag adds --output (-o) with the default table. CheckOutput checks its value.
func OutputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "table", "table, json or yaml")
}

// CheckOutput returns an error of usage unless output is table, json or yaml.
func CheckOutput(output string) error { return OneOf("output", output, "table", "json", "yaml") }

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
	// tabs between them.
	Header string
	Row    func(io.Writer, T)
	// View returns an entry as JSON or YAML.
	View func(T) any
	// None is the text of an empty list.
	None string
	// First is the order of the list in words. Default "newest".
	First string
}

// Print prints the entries in a format that CheckOutput accepts. Notes that the list is empty
// or incomplete are written to the standard error.
func (t Table[T]) Print(cmd *cobra.Command, output string, found []T, more bool) error {
	out, errOut := cmd.OutOrStdout(), cmd.ErrOrStderr()
	if output != "table" {
		views := make([]any, len(found))
		for i, x := range found {
			views[i] = t.View(x)
		}
		return PrintAs(out, output, views)
	}
	if len(found) == 0 {
		_, err := fmt.Fprintln(errOut, t.None)
		return err
	}
	tw := NewColumns(out)
	fmt.Fprintln(tw, t.Header)
	for _, x := range found {
		t.Row(tw, x)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(errOut, "only the %s %d; --limit 0 shows all\n", cmp.Or(t.First, "newest"), len(found))
	}
	return nil
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
