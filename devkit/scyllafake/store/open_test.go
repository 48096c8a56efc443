package store

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// In memory the store runs under virtual time and leaves nothing behind.
func TestOpen_InSynctestBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(Options{})
		if err != nil {
			t.Fatal(err)
		}
		tbl := testTable(1)
		now := time.Now().Unix()
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 200 {
					m := rowMutation(tbl, fmt.Sprint(w), Row{Clustering: ck(i, 0), Columns: []ColumnData{
						columnData(colA, ttl(1, strings.Repeat("x", 5000), 3600, now+3600)),
					}})
					if err := s.Apply([]*Mutation{m}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if err := s.db.Flush(); err != nil {
			t.Error(err)
		}
		time.Sleep(59 * time.Minute)
		if got := strings.Count(dump(t, s, all(tbl)), "\n"); got != 8*201 {
			t.Errorf("lines after 59 minutes = %d, want %d", got, 8*201)
		}
		time.Sleep(24 * time.Hour)
		want(t, "a day later", dump(t, s, all(tbl)), "")
		if err := s.DropTable(1); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestOpen_KeepsDataOnDisk(t *testing.T) {
	t.Parallel()
	dir, tbl := filepath.Join(t.TempDir(), "made", "here"), kvTable(1)
	for i := range 3 {
		s, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(dump(t, s, all(tbl)), "@7\n"); got != min(i, 1) {
			t.Errorf("run %d: partitions = %d", i, got)
		}
		apply(t, s, rowMutation(tbl, "k", Row{Marker: live(int64(i), "")}))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpen_Errors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := Open(Options{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("Open() twice in a process error = %v, want ErrInUse", err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	if out, err := cmd.Output(); err == nil || !strings.Contains(string(out), ErrInUse.Error()) {
		t.Errorf("Open() in another process: %q, %v, want %q", out, err, ErrInUse)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: file}); err == nil || errors.Is(err, ErrInUse) {
		t.Errorf("Open() of a file error = %v", err)
	}
}

func TestApply_Large(t *testing.T) {
	t.Parallel()
	tbl := testTable(1)
	s, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const rows, size = 600, 100_000 // 60 MB, several memtables
	m := partition(tbl, "k")
	for i := range rows {
		m.Rows = append(m.Rows, Row{Clustering: ck(i, 0), Marker: live(1, ""), Columns: []ColumnData{columnData(colA, live(1, strings.Repeat("x", size)))}})
	}
	apply(t, s, m)
	it, err := s.Scan(one(tbl, "k"))
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	n := 0
	for it.NextPartition() {
		for it.NextRow() {
			n += len(it.Row().Columns[0].Cell.Value)
		}
	}
	if n != rows*size {
		t.Errorf("read %d bytes, want %d", n, rows*size)
	}
}
