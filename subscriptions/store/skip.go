package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// maxSkips is the number of skips of a partition that are kept one by one; later ones extend
// the last of them.
const maxSkips = 100

// acknowledged is the notice of an operator. It is valid for a skip that ends at To.
type acknowledged struct {
	To int64     `json:"to"`
	At time.Time `json:"at"`
	By string    `json:"by"`
}

func skipKey(k *subscriptions.Skip) string { return fmt.Sprintf("%d/%d", k.Generation, k.From) }

// AddSkip stores a skip of a partition, which ClaimPartition has claimed. Only its owner calls
// it, and again after an error: the same range is one skip.
func (s *Store) AddSkip(ctx context.Context, p Partition, k subscriptions.Skip) error {
	stored, err := s.Skips(ctx, p.Subscription)
	if err != nil {
		return err
	}
	stored = slices.DeleteFunc(stored, func(o subscriptions.Skip) bool { return o.Topic != p.Topic || o.Partition != p.Number })
	known := slices.ContainsFunc(stored, func(o subscriptions.Skip) bool { return skipKey(&o) == skipKey(&k) })
	if n := len(stored); n >= maxSkips && !known {
		last := stored[n-1]
		last.To, last.Count, last.At = k.To, last.Count+k.Count, k.At
		k = last
	}
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return s.setSkip(ctx, s.stmt.skip, p, skipKey(&k), string(text))
}

func (s *Store) setSkip(ctx context.Context, stmt string, p Partition, key, text string) error {
	err := s.until(ctx, func() error {
		return s.withTimeout(ctx, func(ctx context.Context) error {
			return s.query(ctx, stmt, append([]any{key, text}, p.args()...)...).Exec()
		})
	})
	if err != nil {
		return fmt.Errorf("store a skip of partition %s: %w", p, err)
	}
	return nil
}

// Skips returns the skips of an incarnation, the oldest of each partition at the beginning.
func (s *Store) Skips(ctx context.Context, incarnation string) (out []subscriptions.Skip, err error) {
	err = s.until(ctx, func() error {
		out = nil
		return s.withTimeout(ctx, func(ctx context.Context) error {
			iter := s.query(ctx, s.stmt.skips, incarnation).Iter()
			p := Partition{Subscription: incarnation}
			var skips, notices map[string]string
			for iter.Scan(&p.Topic, &p.Number, &skips, &notices) {
				some, err := decodeSkips(p, skips, notices)
				if err != nil {
					return err
				}
				out = append(out, some...)
				skips, notices = nil, nil
			}
			return iter.Close()
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the skips of subscription %s: %w", incarnation, err)
	}
	return out, nil
}

func decodeSkips(p Partition, skips, notices map[string]string) (out []subscriptions.Skip, err error) {
	for key, text := range skips {
		var k subscriptions.Skip
		if err := json.Unmarshal([]byte(text), &k); err != nil {
			return nil, fmt.Errorf("skip %s of partition %s: %w", key, p, err)
		}
		k.Topic, k.Partition = p.Topic, p.Number
		if notice, ok := notices[key]; ok {
			var a acknowledged
			if err := json.Unmarshal([]byte(notice), &a); err != nil {
				return nil, fmt.Errorf("acknowledged skip %s of partition %s: %w", key, p, err)
			}
			if a.To == k.To {
				k.AcknowledgedAt, k.AcknowledgedBy = a.At, a.By
			}
		}
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b subscriptions.Skip) int { return a.At.Compare(b.At) })
	return out, nil
}

// AcknowledgeSkips notes that an operator has taken notice of all skips of an incarnation, and
// returns their number.
func (s *Store) AcknowledgeSkips(ctx context.Context, incarnation, principal string) (n int, err error) {
	all, err := s.Skips(ctx, incarnation)
	if err != nil {
		return 0, err
	}
	for i := range all {
		k := &all[i]
		if !k.AcknowledgedAt.IsZero() {
			continue
		}
		text, err := json.Marshal(acknowledged{k.To, s.millis(), strings.ToValidUTF8(principal, "\uFFFD")})
		if err != nil {
			return n, err
		}
		p := Partition{Subscription: incarnation, Topic: k.Topic, Number: k.Partition}
		if err := s.setSkip(ctx, s.stmt.acknowledge, p, skipKey(k), string(text)); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
