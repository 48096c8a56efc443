package orders

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
)

// The curl commands of the quickstart run unchanged, in order, against a
// service; only its address and the id of the order are replaced.
func TestDocs_QuickstartCurl(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"curl", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is missing: apt-get install %s", tool, tool)
			}
			t.Skipf("%s is missing", tool)
		}
	}
	text, err := os.ReadFile("../docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(newHandler(t, setup(t).Service, apiserver.Config{}))
	defer srv.Close()
	id, ran := "", 0
	want := []string{"201", "200", "200"} // create, change, cancel
	for _, command := range curls(string(text)) {
		command = strings.ReplaceAll(command, "http://127.0.0.1:8080", srv.URL)
		command = strings.ReplaceAll(command, "/orders/ID", "/orders/"+id)
		command = strings.Replace(command, "curl -s", `curl -s -w '\n%{http_code}'`, 1)
		out, err := exec.CommandContext(t.Context(), "bash", "-c", command).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		body, code, _ := strings.Cut(string(out), "\n\n")
		if ran >= len(want) || code != want[ran] {
			t.Fatalf("command %d, %s: %s", ran+1, command, out)
		}
		if _, rest, ok := strings.Cut(body, `{"id":"`); ok && ran == 0 {
			id, _, _ = strings.Cut(rest, `"`)
		}
		ran++
	}
	if ran != len(want) {
		t.Errorf("ran %d commands of the quickstart, want %d", ran, len(want))
	}
}

// curls returns the commands about orders, with their continuation lines.
func curls(text string) []string {
	var out []string
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if !strings.HasPrefix(line, "curl -s ") {
			continue
		}
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + " " + strings.TrimSpace(lines[i])
		}
		if strings.Contains(line, "/v1/orders") {
			out = append(out, line)
		}
	}
	return out
}
