package e2e

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// report is the output of `outbox-dev run --once`.
type report struct {
	Created    int `json:"orders_created"`
	Cancelled  int `json:"orders_cancelled"`
	Rejected   int `json:"rejected"`
	Written    int `json:"events_written"`
	Published  int `json:"events_published"`
	Lost       int `json:"lost"`
	Duplicates int `json:"duplicates"`
	OutOfOrder int `json:"out_of_order"`
	Latency    struct {
		P50 float64 `json:"p50"`
		P95 float64 `json:"p95"`
		P99 float64 `json:"p99"`
	} `json:"commit_to_consumer_ms"`
	Elapsed float64 `json:"elapsed_s"`
}

// once runs `outbox-dev run --once` on free ports.
func once(t *testing.T, dir string, args ...string) (r report, stderr string, code int) {
	t.Helper()
	addrs := harness.FreeAddrs(t, 3)
	stdout, stderr, code := harness.Run(t, append([]string{
		"run", "--once", "--data-dir", dir,
		"--cql-addr", addrs[0], "--kafka-addr", addrs[1], "--orders-addr", addrs[2],
	}, args...)...)
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		t.Fatalf("stdout is not the promised object: %v\n%s%s", err, stdout, stderr)
	}
	return r, stderr, code
}

func TestDevOnce_RelaysTheSample(t *testing.T) {
	t.Parallel()
	r, stderr, code := once(t, t.TempDir())
	if code != 0 {
		t.Errorf("status %d\n%s", code, stderr)
	}
	if r.Created != 9510 || r.Cancelled != 368 || r.Rejected != 0 {
		t.Errorf("%d created, %d cancelled, %d rejected, want 9510, 368 and 0", r.Created, r.Cancelled, r.Rejected)
	}
	if r.Written != 9878 || r.Published != 9878 || r.Lost != 0 || r.Duplicates != 0 || r.OutOfOrder != 0 {
		t.Errorf("%+v, want 9878 events in the topics, each once and in order", r)
	}
	if l := r.Latency; l.P50 <= 0 || l.P50 > l.P95 || l.P95 > l.P99 {
		t.Errorf("latencies %+v", l)
	}
	t.Logf("%d lines in %.1f s, commit to consumer %+v ms", r.Created+r.Cancelled, r.Elapsed, r.Latency)
}

// Each run continues with the data of the last one, and earlier events are not
// published again, for any number of shards.
func TestDevOnce_ResumesFromItsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "orders.jsonl")
	write(t, file, order("1"), order("2"), `{"op":"cancel","invoice":"1","credit_note":"C1"}`)
	for run := 1; run <= 3; run++ {
		r, stderr, code := once(t, filepath.Join(dir, "data"), "--load", file, "--relay-shards", []string{"1", "3", "2"}[run-1])
		if code != 0 {
			t.Fatalf("run %d: status %d\n%s", run, code, stderr)
		}
		if r.Created != 2 || r.Cancelled != 1 || r.Written != 3*run || r.Published != 3*run || r.Duplicates != 0 {
			t.Errorf("run %d: %+v, want %d events in all", run, r, 3*run)
		}
	}
}

func TestDevOnce_SkipsBrokenLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "orders.jsonl")
	write(t, file,
		order("1"),
		`{"op":"create","order":{`, // 2: no JSON
		order("2"),
		`{"op":"cancel","invoice":"nobody's"}`, // 4: cancels no order
		strings.Replace(order("3"), `"quantity":2`, `"quantity":-2`, 1), // 5: the API refuses it
		`{"op":"cancel","invoice":"2"}`,
	)
	r, stderr, code := once(t, filepath.Join(dir, "data"), "--load", file)
	if code != 0 {
		t.Errorf("status %d, want 0: nothing is lost", code)
	}
	if r.Created != 2 || r.Cancelled != 1 || r.Rejected != 3 || r.Written != 3 {
		t.Errorf("%+v, want 2 created, 1 cancelled, 3 rejected", r)
	}
	for _, want := range []string{"line 2", "line 4", "line 5", "quantity"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr does not name %q:\n%s", want, stderr)
		}
	}
}

func TestDev_NamesWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	notADir := filepath.Join(dir, "file")
	write(t, notADir, "")
	for _, tt := range []struct {
		name string
		args []string
		want []string
	}{
		{"the CQL port", []string{"--cql-addr", taken.Addr().String()}, []string{taken.Addr().String(), "--cql-addr"}},
		{"the Kafka port", []string{"--kafka-addr", taken.Addr().String()}, []string{taken.Addr().String(), "--kafka-addr"}},
		{"the HTTP port", []string{"--orders-addr", taken.Addr().String()}, []string{taken.Addr().String(), "--orders-addr"}},
		{"the data directory", []string{"--data-dir", filepath.Join(notADir, "x")}, []string{notADir, "--data-dir"}},
		{"the file to load", []string{"--load", filepath.Join(dir, "nosuch")}, []string{"nosuch", "outbox-dev load --help"}},
	} {
		addrs := harness.FreeAddrs(t, 3)
		args := append([]string{
			"run", "--once", "--data-dir", filepath.Join(t.TempDir(), "d"),
			"--cql-addr", addrs[0], "--kafka-addr", addrs[1], "--orders-addr", addrs[2],
		}, tt.args...)
		_, stderr, code := harness.Run(t, args...)
		if code == 0 {
			t.Errorf("%s: status 0", tt.name)
		}
		for _, want := range append(tt.want, "hint: ") {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: stderr does not contain %q:\n%s", tt.name, want, stderr)
			}
		}
		if n := strings.Count(strings.TrimSpace(stderr), "\n"); n > 1 {
			t.Errorf("%s: %d lines, want a sentence and a hint:\n%s", tt.name, n+1, stderr)
		}
	}
}

func order(invoice string) string {
	return `{"op":"create","order":{"invoice":"` + invoice + `","customer_id":null,"country":"Finland","placed_at":"2026-01-02T03:04:05Z",` +
		`"currency":"EUR","lines":[{"sku":"71053","description":"White metal lantern","quantity":2,"unit_price":"3.39"}]}}`
}

func write(t *testing.T, path string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
}
