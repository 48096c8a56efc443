package publish

import (
	"context"
	"errors"
	"testing"
)

func TestPriorityOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "7": 7, "-7": -7, " 8 ": 8, "+9": 9, "100": 100, "101": 100, "-101": -100, "99999999999999999999": 100, "-99999999999999999999": -100,
		"high": 0, "1.5": 0, "0x10": 0, "7\x00": 0,
	} {
		if got := priorityOf(map[string]string{HeaderPriority: text}); got != want {
			t.Errorf("priorityOf(%q) = %d, want %d", text, got, want)
		}
	}
	if got := priorityOf(nil); got != 0 {
		t.Errorf("priorityOf() without headers = %d", got)
	}
}

// An unknown load leaves the metadata as it is: neither an old value nor a zero is stored.
func TestState_OfAnUnknownLoad(t *testing.T) {
	t.Parallel()
	var err error
	p := &Publisher{cfg: &Config{Load: func(context.Context) (Load, error) { return Load{CPU: 12.345, Memory: 100}, err }}}
	if m := p.state(map[string]string{}); len(m) != 0 || p.stateAgain(m) != nil {
		t.Errorf("before a measurement: %v", m)
	}
	if _, err := p.measureLoad(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := map[string]string{"host": "h"}
	if m := p.stateAgain(old); m["cpu"] != "0.12" || m["memory"] != "1.00" || m["host"] != "h" || len(old) != 1 {
		t.Errorf("state = %v of %v", m, old)
	}
	if m := p.stateAgain(nil); len(m) != 2 {
		t.Errorf("state without metadata = %v", m)
	}
	err = errors.New("no cgroup")
	if _, got := p.measureLoad(t.Context()); !errors.Is(got, err) || p.stateAgain(old) != nil {
		t.Errorf("after a failed measurement: %v, %v", got, p.stateAgain(old))
	}
}
