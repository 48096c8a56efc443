package layout

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// promisesTests has each sentence of docs/promises.md, followed by an indented line: the tests that
// fail when it becomes false ("package Test", separated by commas), "- " and why it promises
// nothing, or "not tested: " and the reason.
const promisesTests = "promises.txt"

var (
	mdLink  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	mdLabel = regexp.MustCompile(`\*\*[^*]*\*\*`)
	mdItem  = regexp.MustCompile(`^ *- `)
)

// sentences returns the sentences of a Markdown text. A row of a table is one; headings and labels
// in bold type are none.
func sentences(text string) (found []string) {
	var block string // lines of a paragraph or of an item of a list
	end := func() {
		for rest := strings.TrimSpace(block); rest != ""; {
			n := len(rest)
			for i := range rest {
				next := strings.TrimLeft(rest[i:], ". ")
				if strings.HasPrefix(rest[i:], ". ") && (next[0] == '`' || unicode.IsUpper(rune(next[0]))) {
					n = i + 1
					break
				}
			}
			found = append(found, rest[:n])
			rest = strings.TrimSpace(rest[n:])
		}
		block = ""
	}
	header := true // the next row of a table is its header
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(mdLabel.ReplaceAllString(mdLink.ReplaceAllString(line, "$1"), ""))
		switch {
		case strings.HasPrefix(line, "|---"):
			header = false
		case strings.HasPrefix(line, "|"):
			if !header {
				found = append(found, strings.Trim(line, "| "))
			}
		case line == "" || strings.HasPrefix(line, "#"):
			end()
			header = true
		case mdItem.MatchString(line):
			end()
			block = mdItem.ReplaceAllString(line, "")
		default:
			block += " " + line
		}
	}
	end()
	return found
}

// TestPromises_EachSentenceHasItsTest finds a sentence of docs/promises.md without an entry in
// promisesTests, an entry without a sentence, and an entry that names a test which does not exist.
func TestPromises_EachSentenceHasItsTest(t *testing.T) {
	t.Parallel()
	entries := make(map[string]string) // by sentence
	sentence := ""
	for line := range strings.Lines(read(t, promisesTests)) {
		if tests, ok := strings.CutPrefix(line, "\t"); ok {
			entries[sentence] = strings.TrimSpace(tests)
		} else {
			sentence = strings.TrimSpace(line)
		}
	}
	for _, s := range sentences(read(t, filepath.Join(root, "docs/promises.md"))) {
		tests, ok := entries[s]
		delete(entries, s)
		switch {
		case !ok:
			t.Errorf("%s has no entry for %q", promisesTests, s)
		case tests == "-" || tests == "not tested:":
			t.Errorf("%s has no reason for %q", promisesTests, s)
		case !strings.HasPrefix(tests, "- ") && !strings.HasPrefix(tests, "not tested: "):
			for test := range strings.SplitSeq(tests, ",") {
				if pkg, name, _ := strings.Cut(strings.TrimSpace(test), " "); !declaresTest(t, pkg, name) {
					t.Errorf("%s: there is no test %q in package %q", promisesTests, name, pkg)
				}
			}
		}
	}
	for s := range entries {
		t.Errorf("%s has an entry for %q, which docs/promises.md does not have", promisesTests, s)
	}
}

// declaresTest reports whether a test of the package has the name, whatever its build tags.
func declaresTest(t *testing.T, pkg, name string) bool {
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "Test") && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}
