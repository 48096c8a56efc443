package bench

import (
	"strings"
	"testing"
)

// A key that the program renames is an error at the start, and no empty address later.
func TestReady_NamesAMissingKey(t *testing.T) {
	t.Parallel()
	line := map[string]any{"msg": "relay running", "ops": "http://127.0.0.1:1", "hints": "", "shards": 4.0}
	got, err := Ready{Message: "relay running", Attrs: []string{"ops", "hints"}}.read(line)
	if hints, ok := got["hints"]; err != nil || got["ops"] != "http://127.0.0.1:1" || !ok || hints != "" {
		t.Errorf("read() = %v, %v, want both addresses", got, err)
	}
	for _, key := range []string{"operations", "shards"} {
		if _, err := (Ready{Message: "relay running", Attrs: []string{"ops", key}}).read(line); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("without %q: read() error = %v, want one that names it", key, err)
		}
	}
}
