package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// crashDir is set in a child of the test that is there to be killed.
const crashDir = "STORE_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		writeUntilKilled(dir)
	}
	seeds.Rapid()
	os.Exit(m.Run())
}

const (
	crashWriters = 4
	crashRows    = 3 // per write, each in a partition of its own, and one in a second table
)

func crashTables() []*catalog.Table { return []*catalog.Table{kvTable(1), kvTable(2)} }

// crashWrite is the n-th write of a writer. Some are large enough to span
// blocks of the log, a few go past the memtable.
func crashWrite(tables []*catalog.Table, writer, n int) ([]*Mutation, Meta) {
	size := 10
	switch {
	case n%500 == 499:
		size = 3 << 20
	case n%20 == 19:
		size = 40_000
	}
	value := strings.Repeat("v", size)
	var muts []*Mutation
	for i := range crashRows {
		key := fmt.Sprintf("%d/%d/%d", writer, n, i)
		muts = append(muts, rowMutation(tables[i%2], key, Row{Marker: live(1, ""), Columns: []ColumnData{columnData(colA, live(1, value))}}))
	}
	return muts, Meta{fmt.Sprintf("%d/%08d", writer, n), []byte("written")}
}

// writeUntilKilled writes on from where it was killed before, each writer its
// own numbers, and prints every write once it is acknowledged.
func writeUntilKilled(dir string) {
	s, err := Open(Options{Dir: dir})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	tables := crashTables()
	var out sync.Mutex
	for w := range crashWriters {
		go func() {
			done, err := s.Metas(fmt.Sprintf("%d/", w))
			for n := len(done); err == nil; n++ {
				muts, meta := crashWrite(tables, w, n)
				if err = s.Apply(muts, meta); err == nil {
					out.Lock()
					_, err = fmt.Printf("%d %d\n", w, n)
					out.Unlock()
				}
			}
			fmt.Println("error", err)
			os.Exit(1)
		}()
	}
	select {}
}

// TestApply_SurvivesSIGKILL kills a writing process at random moments: each
// acknowledged write is there afterwards, and each write is whole or absent.
func TestApply_SurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	rnd := seeds.Rand(t)
	dir := t.TempDir()
	acked := map[string]bool{}
	for round := range rounds {
		before := len(acked)
		runAndKill(t, dir, time.Duration(rnd.IntN(150))*time.Millisecond, acked)
		whole := checkCrashed(t, dir, acked)
		t.Logf("round %d: %d writes acknowledged, %d there", round, len(acked)-before, whole)
	}
	if len(acked) < rounds {
		t.Errorf("only %d writes in all: nothing was tested", len(acked))
	}
}

// runAndKill runs a writer, kills it a while after its first write and adds its
// acknowledged writes.
func runAndKill(t *testing.T, dir string, after time.Duration, acked map[string]bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var killer *time.Timer
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadString('\n')
		if err != nil { // a line cut short was not acknowledged to anyone
			break
		}
		if strings.HasPrefix(line, "error") {
			t.Errorf("child: %s", line)
		}
		acked[strings.TrimSpace(line)] = true
		if killer == nil {
			killer = time.AfterFunc(after, func() { cmd.Process.Kill() })
		}
	}
	if killer != nil {
		killer.Stop()
	}
	cmd.Process.Kill()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Exited() {
		t.Errorf("child ended by itself: %v", err)
	}
}

// checkCrashed opens the data of a killed process and returns how many writes are
// complete.
func checkCrashed(t *testing.T, dir string, acked map[string]bool) (whole int) {
	t.Helper()
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatalf("Open() after SIGKILL error = %v", err)
	}
	defer s.Close()
	found := map[string]int{}
	for _, tbl := range crashTables() {
		it, err := s.Scan(all(tbl))
		if err != nil {
			t.Fatal(err)
		}
		for it.NextPartition() {
			parts := strings.Split(string(it.Key()), "/")
			write := parts[0] + " " + parts[1]
			found[write]++
			n, _ := strconv.Atoi(parts[1])
			muts, _ := crashWrite(crashTables(), 0, n)
			want := len(muts[0].Rows[0].Columns[0].Cell.Value)
			if !it.NextRow() || len(it.Row().Columns) != 1 || len(it.Row().Columns[0].Cell.Value) != want {
				t.Errorf("row %s is damaged", it.Key())
			}
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	}
	metas, err := s.Metas("")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metas {
		writer, n, _ := strings.Cut(m.Key, "/")
		n = strings.TrimLeft(n, "0")
		if n == "" {
			n = "0"
		}
		found[writer+" "+n] += 100
	}
	for write, parts := range found {
		if parts != 100+crashRows {
			t.Errorf("write %s: %d of %d rows, metadata %v", write, parts%100, crashRows, parts >= 100)
		}
	}
	for write := range acked {
		if found[write] == 0 {
			t.Errorf("acknowledged write %s is lost", write)
		}
	}
	return len(found)
}

// The operating system has every acknowledged write: a copy of the files of a running
// store contains it.
func TestApply_HasWrittenWhenItReturns(t *testing.T) {
	t.Parallel()
	dir, tbl := t.TempDir(), kvTable(1)
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 20 {
		apply(t, s, rowMutation(tbl, fmt.Sprint(i), Row{Marker: live(1, "")}))
		if i%5 == 0 {
			if err := s.DropTable(1); err != nil {
				t.Fatal(err)
			}
		}
		copied, err := Open(Options{Dir: copyDir(t, dir)})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Count(dump(t, copied, all(tbl)), "\n")/2, i%5; got != want {
			t.Errorf("write %d: copy has %d rows, want %d", i, got, want)
		}
		if err := copied.Close(); err != nil {
			t.Error(err)
		}
	}
}

func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "LOCK" || e.IsDir() { // closing a copy of it would release the lock
			continue
		}
		in, err := os.Open(filepath.Join(from, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out, err := os.Create(filepath.Join(to, e.Name()))
		if err == nil {
			_, err = io.Copy(out, in)
		}
		if err == nil {
			err = out.Close()
		}
		in.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}
