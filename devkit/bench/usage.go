package bench

import (
	"os"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// Usage is the resources that a process has used, from /proc; zero where there is none.
type Usage struct {
	// At is the time of the measurement.
	At time.Time
	// CPU is its processor time.
	CPU time.Duration
	// Resident is its memory, Peak its peak memory, in bytes.
	Resident, Peak int64
}

// usage measures a process.
type usage struct {
	proc procfs.Proc
	ok   bool

	mu   sync.Mutex
	last Usage
	over bool
}

func startUsage(pid int) *usage {
	p, err := procfs.NewProc(pid)
	return &usage{proc: p, ok: err == nil}
}

// now measures; after the process's end it returns the last measurement.
func (u *usage) now() Usage {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.ok || u.over {
		return u.last
	}
	stat, err := u.proc.Stat()
	if err != nil {
		return u.last
	}
	u.last.At, u.last.CPU = time.Now(), time.Duration(stat.CPUTime()*float64(time.Second))
	u.last.Resident = int64(stat.ResidentMemory())
	if s, err := u.proc.NewStatus(); err == nil {
		u.last.Peak = int64(s.VmHWM)
	}
	return u.last
}

func (u *usage) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
}

// Cost is the resources that a process used between two moments.
type Cost struct {
	// Cores is the mean number of processors that it kept busy.
	Cores float64 `json:"cores"`
	// PeakMB is its peak memory since its start, in 10^6 bytes.
	PeakMB float64 `json:"peak_mb"`
}

// Since returns the usage since an earlier moment; Resident and Peak are the current
// ones.
func (u Usage) Since(from Usage) Usage {
	u.CPU -= from.CPU
	return u
}

// Plus returns the usage of both processes, at the later moment.
func (u Usage) Plus(other Usage) Usage {
	if other.At.After(u.At) {
		u.At = other.At
	}
	u.CPU, u.Resident, u.Peak = u.CPU+other.CPU, u.Resident+other.Resident, u.Peak+other.Peak
	return u
}

// CostBetween returns the cost between two moments, none if that of one is not known.
func CostBetween(from, to Usage) Cost {
	d := to.At.Sub(from.At).Seconds()
	if d <= 0 || from.At.IsZero() {
		return Cost{}
	}
	return Cost{Cores: (to.CPU - from.CPU).Seconds() / d, PeakMB: float64(to.Peak) / 1e6}
}

// Busy returns the processor time that the whole machine has used, false where it
// cannot be measured.
func Busy() (time.Duration, bool) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, false
	}
	stat, err := fs.Stat()
	if err != nil {
		return 0, false
	}
	t := stat.CPUTotal
	return time.Duration((t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal) * float64(time.Second)), true
}

// Self returns the usage of this process.
func Self() Usage { return startUsage(os.Getpid()).now() }
