package peers

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// poms name the jars of each peer and their versions.
//
//go:embed cassandra.pom.xml kafka.pom.xml
var poms embed.FS

// jars returns the folder with the jars of a peer, downloading them the first
// time. Several processes may call it at once; one of them downloads.
func jars(ctx context.Context, cache, peer string) (string, error) {
	dir := filepath.Join(cache, peer)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()

	pom, err := poms.ReadFile(peer + ".pom.xml")
	if err != nil {
		return "", err
	}
	libs, pomPath := filepath.Join(dir, "libs"), filepath.Join(dir, "pom.xml")
	// The pom is written last, so that an old one tells of jars of an old version.
	if have, err := os.ReadFile(pomPath); err == nil && string(have) == string(pom) {
		if _, err := os.Stat(libs); err == nil {
			return libs, nil
		}
	}
	if err := download(ctx, dir, libs, pom); err != nil {
		return "", fmt.Errorf("download the jars of %s: %w", peer, err)
	}
	return libs, os.WriteFile(pomPath, pom, 0o644)
}

func download(ctx context.Context, dir, libs string, pom []byte) error {
	part, partPom := libs+".part", filepath.Join(dir, "pom.part.xml")
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := os.WriteFile(partPom, pom, 0o644); err != nil {
		return err
	}
	defer os.Remove(partPom)
	mvn := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", partPom,
		"dependency:copy-dependencies", "-DoutputDirectory="+part)
	if out, err := mvn.CombinedOutput(); err != nil {
		return fmt.Errorf("mvn: %w\n%s", err, out)
	}
	if err := os.RemoveAll(libs); err != nil {
		return err
	}
	return os.Rename(part, libs)
}

// lock takes a lock that other processes respect and that ends with this one.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
