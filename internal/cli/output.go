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
		// JSON is YAML; only its style has to go. So both have the same keys.
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

// plainStyle takes JSON's quotes and brackets off.
func plainStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		plainStyle(c)
	}
}

// ListTime is how lists write a time, which is UTC.
const ListTime = "2006-01-02 15:04:05Z"

// NewColumns writes lines of cells, with a tab between two, as columns. Flush it.
func NewColumns(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// FieldsOn is what writes a field of one thing, its name and value, as a line of
// columns; a value that is empty as text is left out.
func FieldsOn(columns io.Writer) func(name string, value any) {
	return func(name string, value any) {
		if text := fmt.Sprint(value); text != "" {
			fmt.Fprintf(columns, "%s\t%s\n", name, Clean(text, 0))
		}
	}
}

// Table is how a command prints things as a list.
type Table[T any] struct {
	// Header names the columns, and row writes one thing's, with tabs between them.
	Header string
	Row    func(io.Writer, T)
	// View is a thing for scripts.
	View func(T) any
	// None is said where there is nothing.
	None string
	// First says which come first; empty means the newest.
	First string
}

// Print prints what was found in a form that checkOutput knows. What is not part of the
// list goes to the standard error: that it is empty, or has more than is printed.
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

// Clean is text of unknown origin for a terminal: no control characters, which
// could do anything there, and no more than n characters.
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
