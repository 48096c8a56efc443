package bench

import (
	"strings"
	"testing"
)

// The report contains measured parts only: no storing without waiting messages, and no
// live events without a load of them.
func TestScheduleReport_ContainsMeasuredPartsOnly(t *testing.T) {
	t.Parallel()
	r := ScheduleReport{Head: Head{Runs: 1, Payload: 512}, None: Waiting{ResidentMB: 81}, Parts: []Delivered{{Name: "burst, 10 due at one moment"}}}
	printed := func() string {
		t.Helper()
		var text, markdown strings.Builder
		if err := WriteText(&text, &r); err != nil {
			t.Fatal(err)
		}
		if err := WriteMarkdown(&markdown, &r); err != nil {
			t.Fatal(err)
		}
		return text.String() + markdown.String()
	}
	out := printed()
	for _, no := range []string{"stored at", "of them waiting", "not for later", "0 messages waiting, and"} {
		if strings.Contains(out, no) {
			t.Errorf("without waiting messages and live events it contains %q:\n%s", no, out)
		}
	}
	r.Many = Waiting{Messages: 20_000, ResidentMB: 83}
	r.Stored = Rate{PerSecond: 70_000}
	r.Live = []Live{{Name: "200/s alone"}, {Name: "200/s beside the burst"}}
	out = printed()
	for _, want := range []string{"20000 of them waiting", "stored at 70000/s", "83 MB", "Events that are not for later", "| 200/s alone |", "| 200/s beside the burst |"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not contain %q:\n%s", want, out)
		}
	}
}
