package dbclock

import (
	"testing"
	"testing/synctest"
	"time"
)

// The clock's time after measurements of nodes whose clocks are off, one every 5 s, and after the
// clock of the host was set.
func TestClock(t *testing.T) {
	t.Parallel()
	const a, b, c = 0, 1, 2
	for name, tt := range map[string]struct {
		ahead [3]time.Duration // of the nodes' clocks at first
		after [3]time.Duration // and after a minute
		nodes []int            // measured in turns
		host  time.Duration    // how far the host's clock is set forward at the end
		want  time.Duration    // how far the clock is off
	}{
		"all agree":                           {nodes: []int{a, b, c}},
		"one is ahead":                        {ahead: [3]time.Duration{b: 10 * time.Minute}, after: [3]time.Duration{b: 10 * time.Minute}, nodes: []int{a, b, c}},
		"one is set forward":                  {after: [3]time.Duration{b: 10 * time.Minute}, nodes: []int{a, b, c}},
		"one is ahead and often measured":     {after: [3]time.Duration{b: 10 * time.Minute}, nodes: []int{a, b, b, b, b, b, c}},
		"one is set back":                     {after: [3]time.Duration{b: -10 * time.Minute}, nodes: []int{a, b, c}, want: -10 * time.Minute},
		"all are set forward":                 {after: [3]time.Duration{a: time.Hour, b: time.Hour, c: time.Hour}, nodes: []int{a, b, c}, want: time.Hour},
		"all are set back":                    {after: [3]time.Duration{a: -time.Hour, b: -time.Hour, c: -time.Hour}, nodes: []int{a, b, c}, want: -time.Hour},
		"one node is set forward":             {after: [3]time.Duration{a: time.Hour}, nodes: []int{a}, want: time.Hour},
		"the host is behind and is set right": {ahead: [3]time.Duration{time.Hour, time.Hour, time.Hour}, after: [3]time.Duration{time.Hour, time.Hour, time.Hour}, nodes: []int{a, b, c}, host: time.Hour, want: time.Hour},
		"the host is set forward":             {nodes: []int{a, b, c}, host: time.Hour},
		"the host is set back":                {nodes: []int{a, b, c}, host: -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var set time.Duration
				clock := &Clock{Wall: func() time.Time { return time.Now().Add(set) }}
				for i := range 24 {
					node := tt.nodes[i%len(tt.nodes)]
					skew := tt.ahead[node]
					if i >= 12 {
						skew = tt.after[node]
					}
					now := time.Now()
					clock.Add(Measurement{Node: string(rune('a' + node)), Time: now.Add(skew).Round(0), Read: now})
					time.Sleep(5 * time.Second)
				}
				set = tt.host
				if got := time.Until(clock.Now()); (got - tt.want).Abs() > time.Millisecond {
					t.Errorf("the clock is off by %s, want %s", got, tt.want)
				}
				if got, want := clock.Ahead(), tt.host-tt.want; (got - want).Abs() > time.Millisecond {
					t.Errorf("Ahead() = %s, want %s", got, want)
				}
			})
		})
	}
}
