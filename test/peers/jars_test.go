package peers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A changed, an additional and a missing jar are reported by name.
func TestVerify(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a.jar", "b.jar"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("abc"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const abc, other = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "00"
	for _, c := range []struct{ name, sums, want string }{
		{"all well", abc + "  a.jar\n" + abc + "  b.jar\n", ""},
		{"another one", abc + "  a.jar\n" + other + "  b.jar\n", "b.jar has the checksum " + abc},
		{"not listed", abc + "  a.jar\n", "b.jar has the checksum"},
		{"missing", abc + "  a.jar\n" + abc + "  b.jar\n" + abc + "  c.jar\n", "c.jar is missing"},
		{"no checksums", "a.jar\n", "not a line of sha256sum"},
	} {
		err := verify(dir, []byte(c.sums))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: verify error = %v, want %q", c.name, err, c.want)
		}
	}
}
