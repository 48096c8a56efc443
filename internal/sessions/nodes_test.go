package sessions

import (
	"log/slog"
	"testing"
)

// A node is the last one, which is never cut off, unless another is connected and answers.
func TestNodes_Others(t *testing.T) {
	t.Parallel()
	n := NewNodes(slog.New(slog.DiscardHandler), nil)
	one := n.at("10.0.0.1:9042")
	if n.others(one) {
		t.Error("a node alone has others")
	}
	other := n.at("10.0.0.2:9042")
	if n.others(one) {
		t.Error("a node that is not connected counts")
	}
	other.open.Store(1)
	if !n.others(one) {
		t.Error("a connected node does not count")
	}
	other.set(true, nil)
	if n.others(one) || len(n.Down()) != 1 || n.Down()[0] != "10.0.0.2" {
		t.Errorf("a node that does not answer counts; down are %v", n.Down())
	}
}
