package share

import (
	"os/exec"
	"testing"
	"testing/synctest"
	"time"
)

// on makes an instance one of a process of its own; ended are the processes that have ended.
func on(p process, ended ...process) func(*Config, *instance) {
	return func(c *Config, _ *instance) {
		c.process, c.ended = p, func(p process) bool {
			for _, e := range ended {
				if p == e {
					return true
				}
			}
			return false
		}
	}
}

// An instance that was killed is replaced immediately by one that starts on its host, and after
// the session timeout by any other.
func TestMember_ReplacesAnEndedProcessOfItsHost(t *testing.T) {
	t.Parallel()
	killed := process{"h", 1, 1}
	for name, c := range map[string]struct {
		next  process
		ended []process
		least time.Duration
		most  time.Duration
	}{
		"ended on this host":                {process{"h", 2, 9}, []process{killed}, 0, time.Second},
		"its id is used again":              {process{"h", 1, 9}, []process{killed}, 0, time.Second},
		"lives, as far as is known":         {process{"h", 2, 9}, nil, 7 * time.Second, 12 * time.Second},
		"another host has the same id free": {process{"i", 2, 9}, []process{killed}, 7 * time.Second, 12 * time.Second},
		"the host is unknown":               {process{}, []process{killed}, 7 * time.Second, 12 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				defer w.close()
				a := w.join("a", on(killed))
				w.until(10*time.Second, "a owns all", func() bool { return w.number("a") == 4 })
				time.Sleep(20 * time.Second)
				a.kill()
				w.join("b", on(c.next, c.ended...))
				if took := w.until(30*time.Second, "b owns all", func() bool { return w.number("b") == 4 }); took < c.least || took > c.most {
					t.Errorf("took %s, want %s to %s", took, c.least, c.most)
				}
			})
		})
	}
}

// The others of a group keep their shards while a member of an ended process is replaced.
func TestMember_RemovesOnlyEndedProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		killed := process{"h", 1, 1}
		a := w.join("a", on(killed))
		b := w.join("b", on(process{"h", 2, 1}))
		w.until(20*time.Second, "both own half", func() bool { return w.number("b") == 2 && w.number("a") == 2 })
		before := b.since()
		a.kill()
		w.join("c", on(process{"h", 3, 1}, killed))
		w.until(3*time.Second, "b and c own half", func() bool { return w.number("b") == 2 && w.number("c") == 2 })
		for shard, at := range b.since() {
			if at != before[shard] {
				t.Errorf("b began with shard %d again", shard)
			}
		}
	})
}

func TestProcess_Ended(t *testing.T) {
	t.Parallel()
	self, ok := thisProcess()
	if !ok {
		t.Skip("this system has no procfs: a killed instance is replaced after the session timeout")
	}
	if got, ok := parseClientID(self.clientID()); !ok || got != self {
		t.Errorf("parseClientID(%q) = %v, %t", self.clientID(), got, ok)
	}
	for _, id := range []string{"", "outbox-relay", "outbox-relay-h-0-1", "outbox-relay-h-x-1", "other-h-1-1", "outbox-relay-h-1-1-1"} {
		if p, ok := parseClientID(id); ok {
			t.Errorf("parseClientID(%q) = %v", id, p)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	start, err := startTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p := process{self.host, cmd.Process.Pid, start}
	if self.hasEnded() || p.hasEnded() {
		t.Error("a running process counts as ended")
	}
	if again := (process{self.host, p.pid, start - 1}); !again.hasEnded() {
		t.Error("the former process of an id counts as running")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !p.hasEnded() {
		t.Error("an ended process counts as running")
	}
}
