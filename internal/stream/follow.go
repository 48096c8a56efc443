package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// MaxFollowed is how many partitions a subscription may follow that names no
// topics: its position has each of them, and goes with each event.
const MaxFollowed = 300

// rejoinPause is between two attempts to go on after the topics became more.
const rejoinPause = time.Second

// follow makes a subscription that names no topics one to all that may be watched.
func (s *Subscription) follow(ctx context.Context) error {
	s.all, s.grown = true, make(chan struct{}, 1)
	s.at[everything] = map[int32]int64{}
	// Before the look at what there is: of what comes after it it is told.
	s.hub.mu.Lock()
	s.hub.all[s] = struct{}{}
	s.hub.mu.Unlock()
	var err error
	s.filter.Topics, err = s.hub.followed(ctx)
	return err
}

// followed are the names of all that may be watched, in order. A *FilterError says
// that they are too many to be followed without being named.
func (h *Hub) followed(ctx context.Context) ([]string, error) {
	topics, err := h.list(ctx)
	if err != nil {
		return nil, err
	}
	partitions := 0
	for _, n := range topics {
		partitions += n
	}
	if partitions > MaxFollowed {
		return nil, &FilterError{"topics", fmt.Sprintf("must be named: those that may be watched have %d partitions, and at most %d can be followed", partitions, MaxFollowed)}
	}
	return slices.Sorted(maps.Keys(topics)), nil
}

// grow begins to follow what has come since. It is as if the watcher came back
// with its position, and new topics were read from their start: nothing is missed
// and nothing comes twice.
func (s *Subscription) grow(ctx context.Context) error {
	names, err := s.hub.followed(ctx)
	if err != nil {
		if errors.As(err, new(*FilterError)) {
			return err
		}
		return s.later(ctx, err)
	}
	more := slices.DeleteFunc(names, func(name string) bool { return slices.Contains(s.filter.Topics, name) })
	if len(more) == 0 {
		return nil
	}
	if err := s.hub.begin(ctx, more, true); err != nil {
		return s.later(ctx, err)
	}
	going := s.detach()
	s.filter.Topics = append(slices.Clone(s.filter.Topics), more...)
	if !going {
		return nil // it ends by ErrSlow, with what it has
	}
	for _, name := range more {
		s.at[name] = map[int32]int64{}
	}
	// What is not read yet is read again from the topics.
	for len(s.live) > 0 {
		if x := <-s.live; x.anew != "" {
			s.at[x.anew] = map[int32]int64{}
		}
	}
	if s.behind != nil {
		s.behind.Close()
		s.behind, s.waiting = nil, nil
	}
	s.until, s.torn = nil, true
	return nil
}

// later has the hub tell of new topics again.
func (s *Subscription) later(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		s.hub.cfg.Logger.Warn("cannot follow new topics yet; trying again", "err", err)
	}
	s.hub.mu.Lock()
	s.hub.listed = nil
	s.hub.mu.Unlock()
	return nil
}

// join goes on at the position, as soon as the broker lets it.
func (s *Subscription) join(ctx context.Context) error {
	for {
		at, told := s.at.clone(), len(s.Gaps)
		err := s.resume(ctx, at)
		if err == nil && len(s.Gaps) > told {
			s.at = at // of these gaps it is told when it comes back
			return ErrGone
		}
		if err == nil {
			s.torn = false
			return nil
		}
		if ctx.Err() == nil {
			s.hub.cfg.Logger.Warn("cannot go on with more topics; trying again", "err", err)
		}
		select {
		case <-time.After(rejoinPause):
		case <-s.hub.ended:
			return ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
