package clitest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// CheckDocuments reports every command line in the Markdown files below dir, except
// CHANGELOG.md, whose command or flag root does not have. calls is a regular expression of
// how documents call the program, such as `outbox|bin/outbox`. Fewer than least
// command lines are an error: the expression is wrong.
//
// A command line is also what follows one in an enumeration, as jobs in "`outbox dlq list` and
// `jobs`", and what begins a row of a table with the head "Command of `outbox dlq`".
func CheckDocuments(t *testing.T, dir, calls string, least int, root *cobra.Command) {
	t.Helper()
	written := regexp.MustCompile("(?m)(?:`|^(?:    |\\$ )?(?:[A-Z_]+=\\S+ )*)(?:" + calls + ") ([a-z][^`\n#]*)")
	listed := regexp.MustCompile("`(?:" + calls + ") ([a-z][^`\n]*)`((?:(?:,|,? and|,? or)\\s+`[a-z][a-z -]*`)+)")
	table := regexp.MustCompile("(?m)^\\| Command of `(?:" + calls + ") ([a-z ]+)` \\|.*\n.*\n((?:\\|.*\n)+)")
	found := 0
	Documents(t, dir, func(file, text string) {
		for _, m := range listed.FindAllStringSubmatch(text, -1) {
			for _, next := range span.FindAllStringSubmatch(m[2], -1) {
				if !strings.HasPrefix(next[1], "outbox") && !follows(root, strings.Fields(m[1]), strings.Fields(next[1])) {
					t.Errorf("%s: %s %s is followed by %s, which is no command", file, root.Name(), m[1], next[1])
				}
			}
		}
		for _, m := range table.FindAllStringSubmatch(text, -1) {
			for row := range strings.Lines(m[2]) {
				cell, _, _ := strings.Cut(row[1:], "|")
				for _, s := range span.FindAllStringSubmatch(cell, -1) {
					found++
					if problem := misspelt(root, strings.Fields(m[1]+" "+s[1])); problem != "" {
						t.Errorf("%s: %s %s %s: %s", file, root.Name(), m[1], s[1], problem)
					}
				}
			}
		}
		for _, m := range written.FindAllStringSubmatch(text, -1) {
			found++
			if problem := misspelt(root, strings.Fields(m[1])); problem != "" {
				t.Errorf("%s: %s %s: %s", file, root.Name(), m[1], problem)
			}
		}
	})
	if found < least {
		t.Errorf("found %d command lines of %s, want at least %d: the expression is wrong", found, root.Name(), least)
	}
}

// span is code in a line.
var span = regexp.MustCompile("`([^`\n]+)`")

// follows reports whether words are a command of root, or of one of the commands in first.
func follows(root *cobra.Command, first, words []string) bool {
	for n := range len(first) + 1 {
		cmd := root
		for _, word := range slices.Concat(first[:n], words) {
			at := -1
			if cmd != nil {
				at = slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == word })
			}
			if at < 0 {
				cmd = nil
				break
			}
			cmd = cmd.Commands()[at]
		}
		if cmd != nil {
			return true
		}
	}
	return false
}

// Documents calls f with the path and the text of each Markdown file below dir, except
// CHANGELOG.md, which names what earlier versions had.
func Documents(t *testing.T, dir string, f func(file, text string)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && (e.Name() == ".git" || e.Name() == ".peers") { // what tests download
			return filepath.SkipDir
		}
		if filepath.Ext(file) != ".md" || e.Name() == "CHANGELOG.md" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err == nil {
			f(file, string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// isArgument reports whether a word is an argument of a command that has subcommands and takes arguments.
func isArgument(cmd *cobra.Command, word string) bool {
	return strings.Contains(cmd.Use, " ") && !slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return slices.Contains(strings.Split(word, "|"), c.Name()) })
}

// misspelt returns which part of a command line, without the program, root does not have,
// or nothing. A word may be several, a|b.
func misspelt(root *cobra.Command, words []string) string {
	cmds := []*cobra.Command{root}
	for i, word := range words {
		if strings.HasPrefix(word, "-") || !cmds[0].HasSubCommands() || isArgument(cmds[0], word) {
			for _, flag := range words[i:] {
				name, ok := strings.CutPrefix(flag, "--")
				name, _, _ = strings.Cut(strings.TrimRight(name, ".,;:)]"), "=")
				if ok && name != "" && name != "help" && cmds[0].Flag(name) == nil {
					return "it has no flag --" + name
				}
			}
			return ""
		}
		var next []*cobra.Command
		for name := range strings.SplitSeq(word, "|") {
			at := slices.IndexFunc(cmds[0].Commands(), func(c *cobra.Command) bool { return c.Name() == strings.TrimRight(name, ".,;:)") })
			if at < 0 {
				return "there is no " + name
			}
			next = append(next, cmds[0].Commands()[at])
		}
		cmds = next
	}
	return ""
}
