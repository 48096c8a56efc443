package brokerstate

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// If this fails, kfake rebuilds the state by itself now and this package can go.
func TestKfake_AppendsTwiceAfterAKill(t *testing.T) {
	t.Parallel()
	b := start(t, filepath.Join(t.TempDir(), "kafka"))
	pid := b.newPID()
	b.mustSend(pid, 0, 0, 2, 0)
	again := start(t, b.image())
	again.mustSend(pid, 0, 0, 2, 2)
	again.wantEnd(4)
}

func TestRecover_ABatchThatComesAgainIsNotAppended(t *testing.T) {
	t.Parallel()
	b := start(t, filepath.Join(t.TempDir(), "kafka"))
	pid := b.newPID()
	b.mustSend(pid, 0, 0, 2, 0)
	again := b.restartKilled(1)
	again.mustSend(pid, 0, 0, 2, 0)
	again.wantEnd(2)
	again.mustSend(pid, 0, 2, 1, 2) // and the next continues
	again.wantEnd(3)
	if _, err := again.send(pid, 0, 9, 1); !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
		t.Errorf("a batch was left out: error %v, want %v", err, kerr.OutOfOrderSequenceNumber)
	}
}

// The file of the last clean close is older than the log then.
func TestRecover_AfterACleanCloseAndAKill(t *testing.T) {
	t.Parallel()
	b := start(t, filepath.Join(t.TempDir(), "kafka"))
	pid, idle := b.newPID(), b.newPID()
	b.mustSend(pid, 0, 0, 1, 0)
	b.mustSend(idle, 0, 0, 1, 1)
	b.stop()
	b = start(t, b.dir)
	for i := range int32(7) { // round the ring of five
		b.mustSend(pid, 0, 1+i, 1, 2+int64(i))
	}
	again := b.restartKilled(1)
	for i := range int32(5) {
		again.mustSend(pid, 0, 3+i, 1, 4+int64(i))
	}
	again.mustSend(idle, 0, 0, 1, 1)
	again.wantEnd(9)
	again.mustSend(pid, 0, 8, 1, 9)
	again.mustSend(idle, 0, 1, 1, 10)
}

func TestRecover_ANewEpochCountsFromZero(t *testing.T) {
	t.Parallel()
	b := start(t, filepath.Join(t.TempDir(), "kafka"))
	pid := b.newPID()
	b.mustSend(pid, 0, 0, 3, 0)
	b.mustSend(pid, 1, 0, 1, 3)
	again := b.restartKilled(1)
	again.mustSend(pid, 1, 0, 1, 3)
	again.mustSend(pid, 1, 1, 1, 4)
	again.wantEnd(5)
}

// The file that kfake writes at a clean close agrees with the log.
func TestRecover_AgreesWithACleanClose(t *testing.T) {
	t.Parallel()
	b := start(t, filepath.Join(t.TempDir(), "kafka"))
	for range 3 {
		pid := b.newPID()
		for i := range int32(8) {
			if _, err := b.send(pid, 0, i*2, 2); err != nil {
				t.Fatal(err)
			}
		}
	}
	killed := b.image()
	b.stop()
	path := filepath.Join(b.dir, "seq_windows.json")
	before := mustRead(t, path)
	if n, err := Recover(b.dir); n != 0 || err != nil {
		t.Errorf("Recover() after a clean close = %d, %v, want 0, nil", n, err)
	}
	if !bytes.Equal(mustRead(t, path), before) {
		t.Error("Recover() changed the file of a clean close")
	}
	if n, err := Recover(killed); n != 3 || err != nil {
		t.Errorf("Recover() = %d, %v, want 3, nil", n, err)
	}
	want, err := readWindows(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readWindows(filepath.Join(killed, "seq_windows.json"))
	if err != nil {
		t.Fatal(err)
	}
	byPID := make(map[int64]window)
	for _, w := range want.Windows {
		byPID[w.PID] = w
	}
	for _, w := range got.Windows {
		if w != byPID[w.PID] {
			t.Errorf("window %+v, kfake has %+v", w, byPID[w.PID])
		}
	}
}

// A batch that the kill cut off is not in the log, so it is to be appended.
func TestRecover_ABatchThatIsCutOff(t *testing.T) {
	t.Parallel()
	b := start(t, filepath.Join(t.TempDir(), "kafka"))
	pid := b.newPID()
	b.mustSend(pid, 0, 0, 1, 0)
	b.mustSend(pid, 0, 1, 1, 1)
	raw := mustRead(t, filepath.Join(b.dir, "partitions", topic+"-0", "0.dat"))
	half := len(raw) / 2
	damaged := bytes.Clone(raw)
	damaged[len(raw)-1]++
	for name, left := range map[string][]byte{
		"before its records": raw[:half+30], "in its length": raw[:half+10], "in its records": raw[:len(raw)-1], "damaged": damaged,
	} {
		t.Run(name, func(t *testing.T) {
			dir := b.image()
			if err := os.WriteFile(filepath.Join(dir, "partitions", topic+"-0", "0.dat"), left, 0o644); err != nil {
				t.Fatal(err)
			}
			if n, err := Recover(dir); n != 1 || err != nil {
				t.Fatalf("Recover() = %d, %v, want 1, nil", n, err)
			}
			again := start(t, dir)
			again.mustSend(pid, 0, 0, 1, 0)
			again.wantEnd(1)
			again.mustSend(pid, 0, 1, 1, 1)
			again.wantEnd(2)
		})
	}
}

func TestRecover_LeavesUnknownFormatsAlone(t *testing.T) {
	t.Parallel()
	b := start(t, filepath.Join(t.TempDir(), "kafka"))
	b.mustSend(b.newPID(), 0, 0, 1, 0)
	for name, content := range map[string]string{
		"meta.json": `{"version":2}`, "seq_windows.json": `{"version":1,"windows":[{"pid":1,"leader":3}]}`,
		"partitions/what/0.dat": "",
	} {
		t.Run(name, func(t *testing.T) {
			dir := b.image()
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "seq_windows.json")
			before := mustRead(t, path)
			if _, err := Recover(dir); !errors.Is(err, ErrFormat) {
				t.Errorf("Recover() error = %v, want %v", err, ErrFormat)
			}
			if !bytes.Equal(mustRead(t, path), before) {
				t.Error("Recover() changed the file")
			}
		})
	}
}

// The offsets of a topic that was deleted and made again begin at 0 again.
func TestRecover_ATopicMadeAgain(t *testing.T) {
	t.Parallel()
	b := start(t, filepath.Join(t.TempDir(), "kafka"))
	pid := b.newPID()
	for i := range int32(9) {
		b.mustSend(pid, 0, i, 1, int64(i))
	}
	b.stop()
	b = start(t, b.dir)
	b.recreate()
	b.mustSend(pid, 0, 0, 1, 0)
	again := b.restartKilled(1)
	again.mustSend(pid, 0, 0, 1, 0)
	again.mustSend(pid, 0, 1, 1, 1)
	again.wantEnd(2)
}

func TestRecover_ADirectoryThatIsNew(t *testing.T) {
	t.Parallel()
	if n, err := Recover(filepath.Join(t.TempDir(), "kafka")); n != 0 || err != nil {
		t.Errorf("Recover() = %d, %v, want 0, nil", n, err)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
