package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// MaxFollowed is the maximum number of partitions of a subscription without topics: its
// position, which is sent with each event, contains all of them.
const MaxFollowed = 300

// rejoinPause is the pause between two attempts to resume after new topics.
const rejoinPause = time.Second

// follow subscribes a subscription without topics to all allowed topics.
func (s *Subscription) follow(ctx context.Context) error {
	s.all, s.grown = true, make(chan struct{}, 1)
	s.at[everything] = map[int32]int64{}
	// Before the topics are listed: it is notified of later ones.
	s.hub.mu.Lock()
	s.hub.all[s] = struct{}{}
	s.hub.mu.Unlock()
	var err error
	s.filter.Topics, err = s.hub.listFollowed(ctx)
	return err
}

// listFollowed returns the names of all allowed topics, sorted. A *FilterError means that
// there are too many.
func (h *Hub) listFollowed(ctx context.Context) ([]string, error) {
	topics, err := h.list(ctx)
	if err != nil {
		return nil, err
	}
	partitions := 0
	for _, n := range topics {
		partitions += n
	}
	if partitions > MaxFollowed {
		return nil, &FilterError{"topics", fmt.Sprintf("required: the allowed topics have %d partitions, and at most %d can be followed", partitions, MaxFollowed)}
	}
	return slices.Sorted(maps.Keys(topics)), nil
}

// grow starts to follow new topics. It resumes at the position of the subscription and
// reads new topics from their start, so no event is missed or repeated.
func (s *Subscription) grow(ctx context.Context) error {
	names, err := s.hub.listFollowed(ctx)
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
		return nil // it ends with ErrSlow after its buffer
	}
	for _, name := range more {
		s.at[name] = map[int32]int64{}
	}
	// Unread events are read again from the topics.
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

// later makes the hub notify of new topics again.
func (s *Subscription) later(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		s.hub.cfg.Logger.Warn("failed to follow new topics, retrying", "err", err)
	}
	s.hub.mu.Lock()
	s.hub.listed = nil
	s.hub.mu.Unlock()
	return nil
}

// join resumes at the position once the broker is reachable.
func (s *Subscription) join(ctx context.Context) error {
	for {
		at, told := s.at.clone(), len(s.Gaps)
		err := s.resume(ctx, at)
		if err == nil && len(s.Gaps) > told {
			s.at = at // it receives these gaps when it resumes
			return ErrGone
		}
		if err == nil {
			s.torn = false
			return nil
		}
		if ctx.Err() == nil {
			s.hub.cfg.Logger.Warn("failed to resume with new topics, retrying", "err", err)
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
