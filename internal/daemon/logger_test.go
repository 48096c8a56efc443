package daemon

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"time"
)

// In JSON a duration has its unit in its key, in groups too; other values stay as they are.
func TestLogger_DurationsAreSeconds(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log, err := NewLogger(&b, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	log.With("budget", time.Minute).Info("retrying", "wait", 820*time.Millisecond, "sequence", 3, slog.Group("tail", "behind", 2*time.Second))
	var line struct {
		Wait     float64 `json:"wait_seconds"`
		Budget   float64 `json:"budget_seconds"`
		Sequence int     `json:"sequence"`
		Tail     struct {
			Behind float64 `json:"behind_seconds"`
		} `json:"tail"`
	}
	if err := json.Unmarshal(b.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line.Wait != 0.82 || line.Budget != 60 || line.Sequence != 3 || line.Tail.Behind != 2 {
		t.Errorf("the line is %s", b.Bytes())
	}
}
