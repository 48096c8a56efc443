package publish

import (
	"context"
	"maps"
	"strconv"
	"sync/atomic"
)

// Metadata of a dead letter: the load of the relay's container at the last failure, as
// fractions of its limits.
const (
	metaCPU    = "cpu"
	metaMemory = "memory"
)

// loadMeter measures the load for the metadata of dead letters and for conditions. It is
// safe for concurrent use.
type loadMeter struct {
	cfg  *Config
	last atomic.Pointer[Load] // as measured last, nil if unknown
}

// measure measures the load.
func (m *loadMeter) measure(ctx context.Context) (Load, error) {
	load, err := m.cfg.LoadMeter.Load(ctx)
	if err != nil {
		m.last.Store(nil)
		return load, err
	}
	m.last.Store(&load)
	return load, nil
}

// addTo adds the last measured load to metadata and returns it; unchanged if the load
// is unknown.
func (m *loadMeter) addTo(metadata map[string]string) map[string]string {
	load := m.last.Load()
	if load == nil {
		return metadata
	}
	if metadata == nil {
		metadata = make(map[string]string, 2)
	}
	metadata[metaCPU], metadata[metaMemory] = fraction(load.CPU), fraction(load.Memory)
	return metadata
}

// renewed returns the metadata of a dead letter whose replay failed; nil if the load
// is unknown, which leaves the stored metadata unchanged.
func (m *loadMeter) renewed(metadata map[string]string) map[string]string {
	if m.last.Load() == nil {
		return nil
	}
	return m.addTo(maps.Clone(metadata))
}

// fraction returns a percentage as a fraction with two digits.
func fraction(percent float64) string { return strconv.FormatFloat(percent/100, 'f', 2, 64) }
