package publish

import (
	"context"
	"errors"
	"testing"
)

// testMeter measures a load, or fails with err.
type testMeter struct{ err error }

func (m *testMeter) Load(context.Context) (Load, error) { return Load{CPU: 12.345, Memory: 100}, m.err }

// An unknown load leaves the metadata as it is: neither an old value nor a zero is stored.
func TestState_OfAnUnknownLoad(t *testing.T) {
	t.Parallel()
	var meter testMeter
	m := &loadMeter{cfg: &Config{LoadMeter: &meter}}
	if got := m.addTo(map[string]string{}); len(got) != 0 || m.renewed(got) != nil {
		t.Errorf("before a measurement: %v", got)
	}
	if _, err := m.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := map[string]string{"host": "h"}
	if got := m.renewed(old); got["cpu"] != "0.12" || got["memory"] != "1.00" || got["host"] != "h" || len(old) != 1 {
		t.Errorf("state = %v of %v", got, old)
	}
	if got := m.renewed(nil); len(got) != 2 {
		t.Errorf("state without metadata = %v", got)
	}
	meter.err = errors.New("no cgroup")
	if _, got := m.measure(t.Context()); !errors.Is(got, meter.err) || m.renewed(old) != nil {
		t.Errorf("after a failed measurement: %v, %v", got, m.renewed(old))
	}
}
