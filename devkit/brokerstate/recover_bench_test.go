package brokerstate

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// 100,000 records of 2 kB in a batch each, and a file that knows nothing yet.
func BenchmarkRecover(b *testing.B) {
	const records = 100_000
	dir := b.TempDir()
	part := filepath.Join(dir, "partitions", topic+"-0")
	if err := os.MkdirAll(part, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "meta.json"), []byte(`{"version":1}`), 0o644); err != nil {
		b.Fatal(err)
	}
	var log []byte
	for i := range records {
		raw := batch(7, 0, int32(i), 150)
		binary.BigEndian.PutUint64(raw, uint64(i))
		log = append(log, raw...)
	}
	if err := os.WriteFile(filepath.Join(part, "0.dat"), log, 0o644); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		if n, err := Recover(dir); n != 1 || err != nil {
			b.Fatal(fmt.Errorf("Recover() = %d, %w", n, err))
		}
		if err := os.Remove(filepath.Join(dir, "seq_windows.json")); err != nil {
			b.Fatal(err)
		}
	}
}
