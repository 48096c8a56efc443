package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// The commands of the pages for the first hour work, in their order, and print the output that the
// pages show. The text between the commands counts where it asks for an action: see session.prose.

func TestPages_OwnTable(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip("there is no perl")
	}
	newSession(t).follow(section(t, readPage(t, "README.md"), "## Your own table in ten minutes"))
}

func TestPages_FiveMinutes(t *testing.T) {
	t.Parallel()
	page := readPage(t, "README.md")
	s := newSession(t)
	s.follow("    make dev\n\n" + section(t, page, "## Five minutes"))
}

func TestPages_Quickstart(t *testing.T) {
	t.Parallel()
	page, _, found := strings.Cut(readPage(t, "docs/quickstart.md"), "`bin/outbox-dev run --once`") // TestDevOnce_RelaysTheSample runs it
	if !found {
		t.Error("the page does not end with outbox-dev run --once")
	}
	newSession(t).follow("    make dev\n\n" + page)
}

func TestPages_Tutorial(t *testing.T) {
	t.Parallel()
	newSession(t).follow(readPage(t, "docs/tutorial.md"))
}

func TestPages_Service(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.follow(readPage(t, "examples/service/README.md"))
	// The topic is visible to clients without a setting.
	s.expect("    curl -s http://127.0.0.1:8084/v1/events/stream", s.shell("curl -sN -m 3 'http://127.0.0.1:8084/v1/events/stream?topics=accounts' || true"), "event: subscribed")
}

// The configuration and the tables of own-tables fit together: an event that is written as the
// page shows reaches its topic.
func TestPages_OwnTables(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.code = func() { appendOrder(t, s.cql("")) }
	s.follow(section(t, readPage(t, "docs/own-tables.md"), "## Your own outbox table"))
}

// appendOrder is the Go code of the page, which outbox/docs_test.go compiles too.
func appendOrder(t *testing.T, db *gocql.Session) {
	t.Helper()
	ctx := t.Context()
	columns, err := outbox.ReadColumns(ctx, db, "shop", "events")
	if err != nil {
		t.Fatal(err)
	}
	table, err := outbox.Mapping{Preset: outbox.PresetDebezium, Columns: map[string]string{"created_at": "happened_at"}}.Table("shop", "events", columns)
	if err != nil {
		t.Fatal(err)
	}
	batch := db.Batch(gocql.LoggedBatch)
	err = table.Append(batch, outbox.Event{
		ID: outbox.IDFromUUID(gocql.TimeUUID()), AggregateID: outbox.IDFromText("order-42"), AggregateType: "order", Type: "OrderPlaced", Payload: []byte("{}"), CreatedAt: time.Now(),
	})
	if err == nil {
		err = batch.Exec()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// section returns the section of a page below a title.
func section(t *testing.T, page, title string) string {
	t.Helper()
	_, text, found := strings.Cut(page, "\n"+title+"\n")
	if !found {
		t.Fatalf("the page has no section %s", title)
	}
	text, _, _ = strings.Cut(text, "\n"+strings.Repeat("#", strings.Count(title, "#"))+" ")
	return text
}

// session is a reader of a page, with terminals.
type session struct {
	t     *testing.T
	dir   string            // with bin, and examples as in the repository
	addrs *strings.Replacer // the pages' addresses by free ones
	names *strings.Replacer // and back
	env   []string
	cqlAt string

	terminals []*terminal
	stopped   *terminal         // the last one that the text stopped
	steps     map[string]string // the first command of each numbered section
	code      func()            // replaces the page's Go code; nil for none
	succeeded bool              // the last command
	again     string            // the last block of commands, if it only reads
	id        string            // of the last answer
}

// newSession makes a folder in which the commands of the pages use free ports.
func newSession(t *testing.T) *session {
	t.Helper()
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("there is no " + tool)
		}
	}
	dir, tools := t.TempDir(), t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var here, there []string
	free := make(map[string]string)
	ports := []string{"9042", "9092", "8080", "8090", "8082", "8084", "9090", "9091", "8085"}
	for i, addr := range harness.FreeAddrs(t, len(ports)) {
		page := "127.0.0.1:" + ports[i]
		here, there = append(here, page, addr), append(there, addr, page)
		free[ports[i]] = addr
	}
	sample := filepath.Join(tools, "sample.jsonl")
	write(t, sample, order("1"), order("2"), `{"op":"cancel","invoice":"2"}`)
	script := func(path, text string) {
		if err := os.WriteFile(path, []byte("#!/usr/bin/env bash\nset -e\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	script(filepath.Join(dir, "bin/outbox"), fmt.Sprintf("case $1 in relay) export OUTBOX_OPS_ADDR=%s;; orders) export OUTBOX_OPS_ADDR=%s; set -- \"$@\" --orders-addr %s;; esac\nexec %s \"$@\"\n",
		free["9090"], free["9091"], free["8080"], harness.Binary(t, "relay")))
	script(filepath.Join(dir, "bin/outbox-dev"), fmt.Sprintf(`command=$1; shift
case $command in
engines) exec %[1]s engines --cql-addr %[2]s "$@";;
run) exec %[1]s run --load %[3]s --cql-addr %[2]s --kafka-addr %[4]s --orders-addr %[5]s --admin-addr %[6]s --subscriptions-addr %[7]s --ops-addr %[8]s --messages-addr %[9]s "$@";;
esac
`, harness.Binary(t, "run"), free["9042"], sample, free["9092"], free["8080"], free["8090"], free["8082"], free["9090"], free["8084"]))
	script(filepath.Join(tools, "make"), `case $1 in
dev) shift; for pair; do export "${pair?}"; done; exec bin/outbox-dev run ${CONFIG:+--config "$CONFIG"};;
build) ;;
*) exit 2;;
esac
`)
	for _, name := range []string{"examples", "outbox"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := &session{
		t: t, dir: dir, addrs: strings.NewReplacer(here...), names: strings.NewReplacer(there...), cqlAt: free["9042"], steps: make(map[string]string),
		env: append(os.Environ(),
			"PATH="+tools+":"+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "OUTBOX_SCYLLA_HOSTS="+free["9042"], "OUTBOX_KAFKA_SEEDS="+free["9092"],
			"OUTBOX_SCYLLA_TIMEOUT="+harness.Patience.String()),
	}
	t.Cleanup(func() {
		for _, x := range s.terminals {
			x.stop()
			if t.Failed() {
				t.Logf("terminal of %s:\n%s", x.command, s.names.Replace(x.out.String()))
			}
		}
	})
	return s
}

// terminal runs a command that does not end by itself.
type terminal struct {
	command string // as in the page
	out     output
	cmd     *exec.Cmd
	ended   chan struct{}
}

func (x *terminal) stop() {
	select {
	case <-x.ended:
		return
	default:
	}
	_ = syscall.Kill(-x.cmd.Process.Pid, syscall.SIGINT)
	select {
	case <-x.ended:
	case <-time.After(30 * time.Second):
		_ = syscall.Kill(-x.cmd.Process.Pid, syscall.SIGKILL)
		<-x.ended
	}
}

// output is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends to the output.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// String returns the written output.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// keeps matches the commands that keep running, and works their output once they work.
var keeps = regexp.MustCompile(`(?m)\b(outbox-dev (engines|run)|make dev|outbox (relay|orders|tail)|go run \.)( |$)`)

var works = regexp.MustCompile(`Ctrl-C stops it|engines running|msg="relay running"|API serving|listening (to|on)|waiting for `)

// reads matches blocks that only read: the reader repeats them until they show the output of the
// page.
var reads = regexp.MustCompile(`^(?:(?:bin/)?(?:outbox (?:doctor|verify|dlq (?:list|stats))[^\n]*|curl -s \S+)(?:\n|$))+$`)

// follow executes a page.
func (s *session) follow(page string) {
	s.t.Helper()
	lines := strings.Split(page, "\n")
	var text []string // the paragraph before the next block
	step, last := "", ""
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		trimmed := strings.TrimSpace(line)
		if title, found := strings.CutPrefix(line, "## "); found {
			step, _, _ = strings.Cut(title, ".")
		}
		switch {
		case strings.HasPrefix(trimmed, "```"):
			language, indent, block := strings.TrimPrefix(trimmed, "```"), len(line)-len(strings.TrimLeft(line, " ")), []string(nil)
			for i++; strings.TrimSpace(lines[i]) != "```"; i++ {
				block = append(block, lines[i][min(indent, len(lines[i])):])
			}
			switch code := strings.Join(block, "\n"); language {
			case "sh":
				last = s.run(step, code, strings.Join(text, " "))
			case "", "json":
				s.expect(strings.Join(text, " "), last, block...)
			case "yaml":
				write(s.t, filepath.Join(s.dir, "relay.yaml"), code)
			case "go":
				if s.code != nil {
					s.code()
				}
			case "cql":
				s.create(code)
			}
			text = nil
		case strings.HasPrefix(line, "    ") && (i == 0 || lines[i-1] == ""):
			var block []string
			for ; strings.HasPrefix(lines[i], "    "); i++ {
				block = append(block, strings.TrimSpace(lines[i]))
			}
			last = s.run(step, strings.Join(block, "\n"), strings.Join(text, " "))
			text = nil
		case trimmed == "" && len(text) > 0:
			s.prose(strings.Join(text, " "))
		case trimmed != "":
			if i > 0 && lines[i-1] == "" {
				text = nil
			}
			text = append(text, trimmed)
		}
	}
}

var (
	stops  = regexp.MustCompile(`[Ss]top the \w+ in terminal (\d) with Ctrl-C`)
	starts = regexp.MustCompile(`Start the \w+ again with the same command`)
	asIn   = regexp.MustCompile(`as in step (\d)`)
	twice  = regexp.MustCompile(`\btwice\b|Repeat the command|send it again`)
)

// prose does what a paragraph asks for: to stop or start a terminal, or to repeat an earlier
// step.
func (s *session) prose(text string) {
	if m := stops.FindStringSubmatch(text); m != nil {
		s.stopped = nil
		for _, x := range s.terminals {
			if strings.Contains(x.command, "# "+m[1]+":") {
				s.stopped = x
			}
		}
		if s.stopped == nil {
			s.t.Fatalf("no command has the comment of terminal %s: %s", m[1], text)
		}
		s.stopped.stop()
	}
	if m := asIn.FindStringSubmatch(text); m != nil {
		s.shell(s.steps[m[1]])
	}
	if starts.MatchString(text) {
		s.start(s.stopped.command)
	}
}

// run executes a block of commands and returns the output of the commands that end.
func (s *session) run(step, block, text string) (printed string) {
	s.t.Helper()
	if s.steps[step] == "" {
		s.steps[step] = block
	}
	if s.again = ""; reads.MatchString(block) {
		s.again = block
		harness.Until(s.t, block+" to succeed", func() bool { printed = s.shell(block); return s.succeeded })
		return printed
	}
	if !keeps.MatchString(block) {
		if printed = s.shell(block); twice.MatchString(text) {
			printed = s.shell(block)
		}
		return printed
	}
	for command := range strings.SplitSeq(block, "\n") {
		if keeps.MatchString(command) {
			s.start(command)
		} else {
			printed += s.shell(command)
		}
	}
	return printed
}

// own returns a command with the session's addresses.
func (s *session) own(command string) string {
	if strings.Contains(command, "go run .") {
		command += " -scylla 127.0.0.1:9042 -addr 127.0.0.1:8085"
	}
	command = strings.ReplaceAll(command, "outbox dlq replay ", "outbox dlq replay --yes ") // the reader confirms in the terminal
	return strings.ReplaceAll(s.addrs.Replace(command), "/ID", "/"+s.id)
}

// start starts a command in a terminal and waits until it works.
func (s *session) start(command string) {
	s.t.Helper()
	for _, x := range s.terminals { // a second relay replaces the first
		if strings.TrimSpace(keeps.FindString(x.command)) == strings.TrimSpace(keeps.FindString(command)) && !strings.Contains(command, "engines") {
			x.stop()
		}
	}
	x := &terminal{command: command, ended: make(chan struct{})}
	x.cmd = exec.Command("bash", "-c", s.own(command))
	x.cmd.Dir, x.cmd.Env = s.dir, s.env
	x.cmd.Stdout, x.cmd.Stderr = &x.out, &x.out
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := x.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { _ = x.cmd.Wait(); close(x.ended) }()
	s.terminals = append(s.terminals, x)
	harness.Until(s.t, command+" to work", func() bool {
		select {
		case <-x.ended:
			s.t.Fatalf("%s ended:\n%s", command, x.out.String())
		default:
		}
		return works.MatchString(x.out.String())
	})
}

// answerID matches the id of a resource.
var answerID = regexp.MustCompile(`^\{"id":"([^"]+)"`)

// shell runs commands to their end.
func (s *session) shell(commands string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), harness.Patience)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-ec", s.own(commands))
	c.Dir, c.Env = s.dir, s.env
	var out output
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	if s.succeeded = err == nil; err != nil && s.again == "" {
		s.t.Fatalf("%s\n%s%v", commands, s.names.Replace(out.String()), err)
	}
	got := s.names.Replace(out.String())
	for line := range strings.Lines(got) {
		if m := answerID.FindStringSubmatch(line); m != nil {
			s.id = m[1]
		}
	}
	return got
}

// expect waits until the last command or a terminal has printed the lines, in their order. Ids,
// times, numbers, space and what … replaces may be others.
func (s *session) expect(after, printed string, lines ...string) {
	s.t.Helper()
	missing := ""
	found := func(text string) bool {
		for _, line := range lines {
			if strings.Contains(line, "█") { // the bar of a longer load
				continue
			}
			at := shape(line).FindStringIndex(text)
			if at == nil {
				missing = line
				return false
			}
			text = text[at[1]:]
		}
		return true
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if found(printed) {
			return
		}
		for _, x := range s.terminals {
			if found(s.names.Replace(x.out.String())) {
				return
			}
		}
		if s.again != "" {
			printed = s.shell(s.again)
		}
		if time.Now().After(end) {
			found(printed)
			s.t.Fatalf("after %q no terminal has printed the line\n%s\nthe last command printed\n%s", after, missing, printed)
		}
	}
}

var varies = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|obx_…|…|\+[0-9.]+m?s|[0-9][0-9.:,TZ-]*|\s+`)

// shape returns the expression of a whole line.
func shape(line string) *regexp.Regexp {
	var b strings.Builder
	line = strings.TrimSpace(line)
	for {
		at := varies.FindStringIndex(line)
		if at == nil {
			b.WriteString(regexp.QuoteMeta(line))
			return regexp.MustCompile(`(?m)^[ \t]*` + b.String() + `[ \t]*$`)
		}
		b.WriteString(regexp.QuoteMeta(line[:at[0]]))
		switch part := line[at[0]:at[1]]; {
		case strings.TrimSpace(part) == "":
			b.WriteString(`\s+`)
		case len(part) >= 36 && part[8] == '-':
			b.WriteString(`[0-9a-f-]{36}`)
		case part[0] == '+':
			b.WriteString(`\+[0-9.]+m?s`) // since the write
		case part[0] >= '0' && part[0] <= '9':
			b.WriteString(`[0-9][0-9.:,TZ-]*`)
		default:
			b.WriteString(`.*`)
		}
		line = line[at[1]:]
	}
}

// create executes the statements of a page.
func (s *session) create(statements string) {
	s.t.Helper()
	for statement := range strings.SplitSeq(statements, ";") {
		if statement = strings.TrimSpace(statement); statement == "" {
			continue
		}
		if err := s.cql("").Query(statement).Exec(); err != nil {
			s.t.Fatalf("%s: %v", statement, err)
		}
	}
}

// cql returns a session of the database.
func (s *session) cql(keyspace string) *gocql.Session {
	s.t.Helper()
	cluster := gocql.NewCluster(s.cqlAt)
	cluster.Keyspace, cluster.Timeout = keyspace, harness.Patience
	db, err := cluster.CreateSession()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(db.Close)
	return db
}
