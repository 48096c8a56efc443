package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// unpack writes the files of an archive in testdata whose names begin with prefix.
func unpack(t *testing.T, archive, prefix, root string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", archive))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(b), "\n-- ")[1:] {
		name, content, _ := strings.Cut(part, " --\n")
		if name, ok := strings.CutPrefix(name, prefix); ok {
			write(t, filepath.Join(root, name), content+"\n")
		}
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLoad_IsAShareOfTheContainersLimit(t *testing.T) {
	t.Parallel()
	for archive, want := range map[string]Load{
		"v2_limits.txt":              {CPU: 60, Memory: 50},
		"v2_slice.txt":               {CPU: 100, Memory: 25},
		"v2_larger_than_machine.txt": {CPU: 75, Memory: 75},
		"v1_limits.txt":              {CPU: 60, Memory: 75},
		"v1_no_limits.txt":           {CPU: 25, Memory: 50},
	} {
		t.Run(archive, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			unpack(t, archive, "", root)
			synctest.Test(t, func(t *testing.T) {
				m := New(root)
				time.Sleep(10 * time.Second)
				unpack(t, archive, "later/", root)
				for range 2 { // the second is not later
					got, err := m.Load(t.Context())
					if err != nil || round(got) != want {
						t.Fatalf("Load() = %+v, %v, want %+v", got, err, want)
					}
				}
			})
		})
	}
}

func round(l Load) Load {
	return Load{CPU: float64(int(l.CPU + 0.5)), Memory: float64(int(l.Memory + 0.5))}
}

// A limit that is set or removed while the process runs costs one measurement: no
// earlier one can be compared with it.
func TestLoad_LimitAppears(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	unpack(t, "v2_limits.txt", "", root)
	write(t, filepath.Join(root, "sys/fs/cgroup/cpu.max"), "max 100000\n")
	synctest.Test(t, func(t *testing.T) {
		m := New(root)
		time.Sleep(10 * time.Second)
		unpack(t, "v2_limits.txt", "", root)
		if _, err := m.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "no earlier measurement") {
			t.Errorf("Load() error = %v, want that there is no earlier measurement", err)
		}
		time.Sleep(10 * time.Second)
		unpack(t, "v2_limits.txt", "later/", root)
		if got, err := m.Load(t.Context()); err != nil || round(got) != (Load{60, 50}) {
			t.Errorf("Load() = %+v, %v, want 60 and 50", got, err)
		}
	})
}

// A file that cannot be read is an error, never a load of 0, which would admit
// everything.
func TestLoad_UnreadableIsAnError(t *testing.T) {
	t.Parallel()
	for file, content := range map[string]string{
		"proc/stat": "", "proc/meminfo": "", "sys/fs/cgroup/cpu.stat": "user_usec 1\n",
		"sys/fs/cgroup/memory.current": "\n", "sys/fs/cgroup/memory.stat": "anon 1\n",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			unpack(t, "v2_limits.txt", "", root)
			m := New(root)
			write(t, filepath.Join(root, file), content)
			if got, err := m.Load(t.Context()); err == nil {
				t.Errorf("Load() = %+v, want an error", got)
			}
		})
	}
	if got, err := New(t.TempDir()).Load(t.Context()); err == nil {
		t.Errorf("Load() without /proc = %+v, want an error", got)
	}
}

// This machine's own files are read.
func TestLoad_OfThisMachine(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/stat"); err != nil {
		t.Skip("no /proc")
	}
	m := New("/")
	if l, err := m.Load(t.Context()); err != nil || l.Memory <= 0 || l.Memory > 100 || l.CPU < 0 || l.CPU > 100 {
		t.Errorf("Load() = %+v, %v", l, err)
	}
}
