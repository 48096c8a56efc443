// Package cgroup measures the load of this process's container, in percent of the
// container's limits: the control group's (version 2 or 1), which the kernel
// enforces. A resource without a limit is measured as a share of the whole machine,
// because the process can use all of it.
//
// CPU is the processor time of the control group since the last measurement, divided by
// the time that its quota allowed (cpu.max; cpu.cfs_quota_us in version 1). CPU sets
// are not considered. Memory is the memory of the control group without reclaimable
// page cache (memory.current less inactive_file, the working set of Kubernetes),
// divided by memory.max (memory.limit_in_bytes). Of nested control groups the innermost
// with a limit counts. A limit that is not below the machine's size counts as no limit.
//
// The package reads Linux's files only; on other systems every measurement fails. It
// does not measure single processes.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// Load is the load of the container, or of the machine without a limit, in percent.
type Load struct{ CPU, Memory float64 }

// Meter measures Load. It is safe for concurrent use.
type Meter struct {
	root  string
	began time.Time

	mu struct {
		sync.Mutex
		last  sample
		share float64 // CPU between the last two samples
	}
}

// sample is processor time in seconds since any fixed moment: the time used and the
// time available.
type sample struct {
	source      string // the control group or the machine
	used, total float64
}

// New returns a Meter of the system whose proc and sys are below root, "/" except in
// tests. Its first measurement of CPU covers the time since New.
func New(root string) *Meter {
	m := &Meter{root: root, began: time.Now()}
	_, _ = m.Load(context.Background()) // the first sample; Load returns errors
	return m
}

// Load measures the load. Its CPU covers the time since the previous call.
func (m *Meter) Load(context.Context) (Load, error) {
	fs, err := procfs.NewFS(filepath.Join(m.root, "proc"))
	if err != nil {
		return Load{}, fmt.Errorf("measure CPU and memory: %w", err)
	}
	cpu, err := m.cpu(fs)
	if err != nil {
		return Load{}, fmt.Errorf("measure CPU: %w", err)
	}
	memory, err := m.memory(fs)
	if err != nil {
		return Load{}, fmt.Errorf("measure memory: %w", err)
	}
	return Load{CPU: cpu, Memory: memory}, nil
}

func (m *Meter) cpu(fs procfs.FS) (float64, error) {
	stat, err := fs.Stat()
	if err != nil {
		return 0, err
	}
	t := stat.CPUTotal
	busy := t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal
	now := sample{"the machine", busy, busy + t.Idle + t.Iowait}
	capacity := 1.0
	if g, limit := m.findLimit("cpu", float64(len(stat.CPU))); g != nil {
		capacity, now = limit, sample{source: g.dir, total: time.Since(m.began).Seconds()}
		if now.used, err = g.cpuSeconds(); err != nil {
			return 0, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.mu.last
	if now.source == last.source && now.total <= last.total {
		return m.mu.share, nil // no time has passed
	}
	m.mu.last = now
	if now.source != last.source {
		return 0, fmt.Errorf("no earlier measurement of %s", now.source)
	}
	m.mu.share = percent(now.used-last.used, (now.total-last.total)*capacity)
	return m.mu.share, nil
}

func (m *Meter) memory(fs procfs.FS) (float64, error) {
	info, err := fs.Meminfo()
	if err != nil {
		return 0, err
	}
	if info.MemTotalBytes == nil || info.MemAvailableBytes == nil {
		return 0, errors.New("meminfo has no MemTotal or MemAvailable")
	}
	all := float64(*info.MemTotalBytes)
	g, limit := m.findLimit("memory", all)
	if g == nil {
		return percent(all-float64(*info.MemAvailableBytes), all), nil
	}
	used, err := g.memoryBytes()
	return percent(used, limit), err
}

// percent returns used as a share of all, from 0 to 100.
func percent(used, all float64) float64 { return min(max(100*used/all, 0), 100) }

// group is a control group of version 2, or of one controller of version 1.
type group struct {
	dir string
	// accounts is the directory where version 1 counts processor time; empty in version
	// 2.
	accounts string
}

// findLimit returns the innermost control group of this process in which controller
// has a limit below most, and the limit; nil if there is none.
func (m *Meter) findLimit(controller string, most float64) (*group, float64) {
	path, v1 := m.path(controller)
	for ; path != ""; path = parent(path) {
		g := &group{dir: filepath.Join(m.root, "sys/fs/cgroup", path)}
		if v1 {
			g.dir = filepath.Join(m.root, "sys/fs/cgroup", controller, path)
			g.accounts = filepath.Join(m.root, "sys/fs/cgroup/cpuacct", path)
		}
		if limit, err := g.limit(controller); err == nil && limit > 0 && limit < most {
			return g, limit
		}
	}
	return nil, 0
}

// path returns the path of this process's control group in the hierarchy of controller,
// of version 1 or the one of version 2; empty if there is neither. In a container whose
// hierarchy is mounted from its own group the path may be partly missing: its group is
// then the root.
func (m *Meter) path(controller string) (path string, v1 bool) {
	lines, _ := os.ReadFile(filepath.Join(m.root, "proc/self/cgroup"))
	for line := range strings.Lines(string(lines)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(f) < 3:
		case strings.Contains(","+f[1]+",", ","+controller+","):
			return filepath.Clean(f[2]), true
		case f[0] == "0":
			path = filepath.Clean(f[2])
		}
	}
	return path, false
}

// parent returns the parent of a path, empty for the root.
func parent(path string) string {
	if up := filepath.Dir(path); up != path {
		return up
	}
	return ""
}

// limit returns a number of processors or bytes, infinite or negative without a limit.
func (g *group) limit(controller string) (float64, error) {
	v1 := g.accounts != ""
	switch {
	case controller == "memory" && v1:
		return number(g.dir, "memory.limit_in_bytes", 0)
	case controller == "memory":
		return number(g.dir, "memory.max", 0)
	}
	quotaFile, periodFile, at := "cpu.max", "cpu.max", 1
	if v1 {
		quotaFile, periodFile, at = "cpu.cfs_quota_us", "cpu.cfs_period_us", 0
	}
	quota, err := number(g.dir, quotaFile, 0)
	if err != nil {
		return 0, err
	}
	period, err := number(g.dir, periodFile, at)
	return quota / period, err
}

func (g *group) cpuSeconds() (float64, error) {
	if g.accounts != "" {
		ns, err := number(g.accounts, "cpuacct.usage", 0)
		return ns / 1e9, err
	}
	us, err := value(g.dir, "cpu.stat", "usage_usec")
	return us / 1e6, err
}

func (g *group) memoryBytes() (float64, error) {
	file, cache := "memory.current", "inactive_file"
	if g.accounts != "" {
		file, cache = "memory.usage_in_bytes", "total_inactive_file"
	}
	used, err := number(g.dir, file, 0)
	if err != nil {
		return 0, err
	}
	reclaimable, err := value(g.dir, "memory.stat", cache)
	return used - reclaimable, err
}

// number returns the word at a position of a file: a number, or infinity for max.
func number(dir, file string, at int) (float64, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	words := strings.Fields(string(b))
	switch {
	case err != nil:
		return 0, err
	case len(words) <= at:
		return 0, fmt.Errorf("%s: no word %d in %q", file, at, b)
	case words[at] == "max":
		return math.Inf(1), nil
	}
	return strconv.ParseFloat(words[at], 64)
}

// value returns the number after key in a file of lines "key number".
func value(dir, file, key string) (float64, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, key+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(v), 64)
		}
	}
	return 0, fmt.Errorf("%s: no %s", file, key)
}
