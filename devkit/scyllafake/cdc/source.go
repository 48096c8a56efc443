package cdc

import "sync/atomic"

// source generates the low half of each cdc$time: the same numbers in the same order
// for one seed. Unlike a rand.Source it is safe for concurrent use without a lock.
type source struct{ state atomic.Uint64 }

// next implements SplitMix64.
func (s *source) next() uint64 {
	z := s.state.Add(0x9e3779b97f4a7c15)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
