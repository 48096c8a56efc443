package bench

import (
	"strings"
	"testing"
)

// The report contains measured parts only.
func TestShapeReport_ContainsMeasuredPartsOnly(t *testing.T) {
	t.Parallel()
	r := ShapeReport{Head: Head{Runs: 1, Rate: 5000, Payload: 512}}
	parts := []struct {
		add  func()
		want string
	}{
		{func() {
			r.Shapes = []Shape{{Payload: 10_000, Relay: Drained{Name: "10 kB, relay", Rate: Rate{PerSecond: 6000}}, Peer: Drained{Name: "10 kB, peer", Rate: Rate{PerSecond: 8000}}}}
		}, "| 10 kB, relay | 0 | 6000 | 60.0 | 75 % |"},
		{func() { r.Load = []Contender{{Name: "relay, hints", Arrived: Rate{PerSecond: 4998}}} }, "| relay, hints | 4998 |"},
		{func() { r.Resumed = &Resumed{ReadBack: 1000, Counts: Counts{Written: 1001}} }, "Killed with 1000 events"},
	}
	for have := 0; ; have++ {
		var out strings.Builder
		if err := WriteMarkdown(&out, &r); err != nil {
			t.Fatal(err)
		}
		for i, p := range parts {
			if is, want := strings.Contains(out.String(), p.want), i < have; is != want {
				t.Errorf("with %d parts it contains %q: %v, want %v:\n%s", have, p.want, is, want, out.String())
			}
		}
		if have == len(parts) {
			return
		}
		parts[have].add()
	}
}
