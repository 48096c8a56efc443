package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"
)

// program is a program with commands that fail in every way.
func program(out, errOut io.Writer) *cobra.Command {
	root := NewRoot("outbox", "Short", "Long", out, errOut)
	failing := func(use string, err error) *cobra.Command {
		return &cobra.Command{Use: use, Short: "Fail", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return err }}
	}
	invalid := new(gocql.RequestErrUnavailable)
	invalid.Code = gocql.ErrCodeInvalid
	letters := &cobra.Command{Use: "letters", Short: "Work with letters"}
	list := failing("list", nil)
	list.Flags().Int("limit", 10, "maximum number")
	list.Flags().Duration("wait", 0, "how long to wait")
	if err := list.Flags().SetAnnotation("wait", GroupAnnotation, []string{"relay"}); err != nil {
		panic(err)
	}
	letters.AddCommand(list, failing("replay", nil))
	root.AddCommand(
		letters,
		failing("works", nil),
		failing("fails", errors.New("no node answers\n")),
		failing("usage", Usage(errors.New("two flags exclude each other"))),
		failing("hint", WithHint(fmt.Errorf("open: %w", os.ErrNotExist), "create %s first", "orders.jsonl")),
		failing("quiet", fmt.Errorf("check: %w", QuietError{})),
		failing("waits", fmt.Errorf("replay: %w", WaitsError{})),
		failing("table", invalid),
	)
	return root
}

// Scripts rely on the exit status; people on the error and its hint.
func TestExecute(t *testing.T) {
	t.Parallel()
	for line, tt := range map[string]struct {
		code   int
		errOut []string // lines
	}{
		"works":                   {code: ExitOK},
		"letters list --limit 5":  {code: ExitOK},
		"fails":                   {ExitFailed, []string{"outbox: no node answers"}},
		"usage":                   {ExitUsage, []string{"outbox: two flags exclude each other"}},
		"hint":                    {ExitFailed, []string{"outbox: open: file does not exist", "hint: create orders.jsonl first"}},
		"quiet":                   {code: ExitFailed},
		"waits":                   {code: ExitWaits},
		"letters list --limit x":  {ExitUsage, []string{`outbox: invalid argument "x" for "--limit" flag: strconv.ParseInt: parsing "x": invalid syntax`, "hint: outbox letters list --help lists the flags"}},
		"letters list --limits 5": {ExitUsage, []string{"outbox: unknown flag: --limits", "hint: outbox letters list --help lists the flags"}},
		"letters list all":        {ExitUsage, []string{`outbox: unknown command "all" for "outbox letters list"`, "hint: outbox letters list --help shows its usage"}},
		"letters lsit":            {ExitUsage, []string{`outbox: unknown command "lsit" for "outbox letters"`, "hint: did you mean list?"}},
		"lettres":                 {ExitUsage, []string{`outbox: unknown command "lettres" for "outbox"`, "hint: did you mean letters?"}},
		"unheard":                 {ExitUsage, []string{`outbox: unknown command "unheard" for "outbox"`, "hint: outbox --help shows its usage"}},
		"letters unheard":         {ExitUsage, []string{`outbox: unknown command "unheard" for "outbox letters"`, "hint: outbox letters --help shows its usage"}},
	} {
		var out, errOut bytes.Buffer
		if code := Execute(program(&out, &errOut), strings.Fields(line), &errOut); code != tt.code {
			t.Errorf("%s: status %d, want %d", line, code, tt.code)
		}
		if want := strings.Join(append(tt.errOut, ""), "\n"); errOut.String() != want {
			t.Errorf("%s prints\n%s, want\n%s", line, errOut.String(), want)
		}
		if out.Len() > 0 {
			t.Errorf("%s prints an error among its results: %s", line, out.String())
		}
	}
}

// An error that a missing table or column explains has the command that adds it.
func TestExecute_MissingTable(t *testing.T) {
	t.Parallel()
	var errOut bytes.Buffer
	if code := Execute(program(io.Discard, &errOut), []string{"table"}, &errOut); code != ExitFailed {
		t.Errorf("status %d, want %d", code, ExitFailed)
	}
	if !strings.Contains(errOut.String(), "hint: if a table or a column is missing, outbox schema migrate adds it") {
		t.Errorf("the error is %s", errOut.String())
	}
}

// A command without its subcommand prints its help, with all of its commands.
func TestExecute_Help(t *testing.T) {
	t.Parallel()
	for line, wants := range map[string][]string{
		"letters":             {"Usage:\n  outbox letters", "\nCommands:\n", "  list ", "  replay ", "\"outbox letters [command] --help\" describes a command."},
		"letters list --help": {"Usage:\n  outbox letters list [flags]\n", "\nExamples:\n  outbox letters list\n  outbox letters list --limit 5\n", "\nFlags:\n", "--limit int", "\nSettings of relay:\n", "--wait duration"},
		"--help":              {"Usage:\n", "  works ", "  letters "},
	} {
		var out, errOut bytes.Buffer
		root := program(&out, &errOut)
		if err := Examples(root, map[string]string{"letters list": "\noutbox letters list\noutbox letters list --limit 5\n"}); err != nil {
			t.Fatal(err)
		}
		if code := Execute(root, strings.Fields(line), &errOut); code != ExitOK {
			t.Errorf("%s: status %d: %s", line, code, errOut.String())
		}
		for _, want := range wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s prints\n%s without %q", line, out.String(), want)
			}
		}
	}
}

// The settings of a part are listed below the command's own flags.
func TestUsage_GroupsFlags(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	Execute(program(&out, io.Discard), []string{"letters", "list", "--help"}, io.Discard)
	own, settings, found := strings.Cut(out.String(), "\nSettings of relay:\n")
	if !found || !strings.Contains(own, "--limit") || strings.Contains(own, "--wait") || !strings.Contains(settings, "--wait") || strings.Contains(settings, "--limit") {
		t.Errorf("the usage is\n%s", out.String())
	}
}

func TestExamples_OfUnknownCommands(t *testing.T) {
	t.Parallel()
	err := Examples(program(io.Discard, io.Discard), map[string]string{"letters": "ok", "letters count": "no", "": "no"})
	if err == nil {
		t.Fatal("examples of commands that do not exist are accepted")
	}
	for _, path := range []string{`"letters count"`, `""`} {
		if !strings.Contains(err.Error(), "example of "+path+": there is no such command") {
			t.Errorf("Examples() = %v, want an error of %s", err, path)
		}
	}
	if n := strings.Count(err.Error(), "example of"); n != 2 {
		t.Errorf("Examples() = %v, want 2 errors", err)
	}
}

func TestPortHint(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		hint string
	}{
		"in use":        {os.NewSyscallError("bind", syscall.EADDRINUSE), "another process uses :8080; stop it, or set another address with --orders.addr"},
		"not permitted": {os.NewSyscallError("bind", syscall.EACCES), "this user may not listen on :8080; set a port above 1023 with --orders.addr"},
		"another":       {os.NewSyscallError("bind", syscall.EADDRNOTAVAIL), ""},
	} {
		err := PortHint(tt.err, ":8080", "--orders.addr")
		if got := FindHint(err); got != tt.hint || !errors.Is(err, tt.err) || err.Error() != tt.err.Error() {
			t.Errorf("%s: PortHint() = %v with hint %q, want hint %q", name, err, got, tt.hint)
		}
	}
}

// A value of --output that is none is an error of usage, and the command does not run.
func TestOutputFlag(t *testing.T) {
	t.Parallel()
	execute := func(value string) (ran bool, status int, errText string) {
		var e bytes.Buffer
		var output string
		root := NewRoot("x", "", "", io.Discard, &e)
		cmd := &cobra.Command{Use: "do", RunE: func(*cobra.Command, []string) error { ran = output == value; return nil }}
		OutputFlag(cmd, &output)
		root.AddCommand(cmd)
		status = Execute(root, []string{"do", "-o", value}, &e)
		return ran, status, e.String()
	}
	for _, ok := range []string{"table", "json", "yaml"} {
		if ran, status, text := execute(ok); !ran || status != ExitOK {
			t.Errorf("-o %q: status %d: %s", ok, status, text)
		}
	}
	for _, bad := range []string{"", "Table", "xml"} {
		ran, status, text := execute(bad)
		if want := fmt.Sprintf("x: --output %q: use table or json or yaml\n", bad); ran || status != ExitUsage || text != want {
			t.Errorf("-o %q: status %d, %q, want the error of usage %q", bad, status, text, want)
		}
	}
}

func TestPlural(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 rows", 1: "1 row", 2: "2 rows"} {
		if got := Plural(n, "row"); got != want {
			t.Errorf("Plural(%d) = %q, want %q", n, got, want)
		}
	}
}
