package peers

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// pinned names the jars of each peer: PEER.pom.xml their versions, PEER.sha256
// what `sha256sum *.jar` prints of them.
//
//go:embed *.pom.xml *.sha256
var pinned embed.FS

// downloads is how often a download is tried; the pause after the first is firstPause,
// and each one is twice as long as that before.
const (
	downloads  = 5
	firstPause = 5 * time.Second
)

// jars returns the folder with the jars of a peer and downloads them the first
// time. Several processes may call it concurrently; one of them downloads.
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

	pom, err := pinned.ReadFile(peer + ".pom.xml")
	if err != nil {
		return "", err
	}
	sums, err := pinned.ReadFile(peer + ".sha256")
	if err != nil {
		return "", err
	}
	libs, pomPath := filepath.Join(dir, "libs"), filepath.Join(dir, "pom.xml")
	// The pom is written last, so an old one means jars of an old version.
	if have, err := os.ReadFile(pomPath); err == nil && string(have) == string(pom) {
		if _, err := os.Stat(libs); err == nil {
			return libs, nil
		}
	}
	if err := download(ctx, dir, libs, pom, sums); err != nil {
		return "", fmt.Errorf("download the jars of %s: %w", peer, err)
	}
	return libs, os.WriteFile(pomPath, pom, 0o644)
}

// download moves the jars into libs when all of them are complete and match
// sums.
func download(ctx context.Context, dir, libs string, pom, sums []byte) error {
	part, partPom := libs+".part", filepath.Join(dir, "pom.part.xml")
	if err := os.WriteFile(partPom, pom, 0o644); err != nil {
		return err
	}
	defer os.Remove(partPom)
	var err error
	for try := range downloads {
		if try > 0 {
			select {
			case <-time.After(firstPause << (try - 1)): // the registry may be unavailable for a moment
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			}
		}
		if err = os.RemoveAll(part); err != nil {
			return err
		}
		var out []byte
		// -C: reject incomplete downloads
		mvn := exec.CommandContext(ctx, "mvn", "-q", "-B", "-C", "-f", partPom, "dependency:copy-dependencies", "-DoutputDirectory="+part)
		if out, err = mvn.CombinedOutput(); err == nil {
			break
		}
		err = fmt.Errorf("mvn: %w\n%s", err, out)
	}
	if err != nil {
		return err
	}
	if err := verify(part, sums); err != nil {
		return err
	}
	if err := os.RemoveAll(libs); err != nil {
		return err
	}
	return os.Rename(part, libs)
}

// verify checks the jars of a folder against lines of sha256sum: all of them,
// and no others.
func verify(dir string, sums []byte) error {
	want := make(map[string]string)
	for line := range strings.Lines(string(sums)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			return fmt.Errorf("%q is not a line of sha256sum", line)
		}
		want[name] = sum
	}
	jars, err := filepath.Glob(filepath.Join(dir, "*.jar"))
	if err != nil {
		return err
	}
	var wrong []error
	for _, jar := range jars {
		name := filepath.Base(jar)
		b, err := os.ReadFile(jar)
		if err != nil {
			return err
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != want[name] {
			wrong = append(wrong, fmt.Errorf("%s has the checksum %s, want %q", name, got, want[name]))
		}
		delete(want, name)
	}
	for name := range want {
		wrong = append(wrong, fmt.Errorf("%s is missing", name))
	}
	return errors.Join(wrong...)
}

// lock acquires a lock between processes, which ends with this process.
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
