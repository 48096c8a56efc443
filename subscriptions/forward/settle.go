package forward

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// part are the actions for one owner and their places in the request.
type part struct {
	actions []subscriptions.Settle
	at      []int
}

func (p *part) add(a *subscriptions.Settle, at int) {
	p.actions, p.at = append(p.actions, *a), append(p.at, at)
}

// Settle implements subscriptions.Service. While a partition changes its owner it waits for the
// next one, up to handOverWait.
func (s *Service) Settle(ctx context.Context, name string, actions []subscriptions.Settle) ([]subscriptions.Result, error) {
	began := time.Now()
	owners := make([]string, len(actions))
	for i := range actions {
		owner, ok := s.cfg.Receipts.Owner(name, actions[i].Receipt)
		if !ok {
			owner = s.cfg.Instance // which knows the problem with it
		}
		owners[i] = owner
	}
	out, err := s.settleOnce(ctx, name, actions, owners)
	moving := began
	if time.Since(began) > s.cfg.Timeout+lastPause { // longer than a peer that hangs: it waited for its confirmation until the partition was given up
		moving = time.Now()
	}
	for n := 1; ; n++ {
		open := selectOpen(actions, out, err, time.Since(began) < handOverWait)
		if len(open.at) == 0 || time.Since(moving) >= handOverWait || retry.Wait(ctx, retry.Backoff(firstPause, lastPause, n)) != nil {
			return out, err
		}
		receipts := make([]string, len(open.at))
		for i := range open.actions {
			receipts[i] = open.actions[i].Receipt
		}
		holders, unknown := s.cfg.Receipts.Holders(ctx, name, receipts)
		if unknown != nil {
			continue
		}
		results, failed := s.settleOnce(ctx, name, open.actions, holders)
		switch {
		case failed == nil && out == nil: // all are open
			out, err = results, nil
		case failed == nil:
			open.fill(out, results)
		case out == nil:
			err = failed
		}
	}
}

// selectOpen returns the actions without a final result: the same receipt may have another one at
// the next owner of its partition, and a confirmed action is confirmed again. unconfirmed includes
// actions that were applied without a confirmation.
func selectOpen(actions []subscriptions.Settle, results []subscriptions.Result, err error, unconfirmed bool) (open part) {
	if err != nil && !errors.Is(err, subscriptions.ErrUnavailable) {
		return part{}
	}
	for i := range actions {
		if results == nil || results[i].Code == subscriptions.CodeUnavailable || unconfirmed && results[i].Code == subscriptions.CodeUnknown {
			open.add(&actions[i], i)
		}
	}
	return open
}

// settleOnce applies actions at the instances that own their partitions; an empty name is that
// of this instance.
func (s *Service) settleOnce(ctx context.Context, name string, actions []subscriptions.Settle, owners []string) ([]subscriptions.Result, error) {
	parts := map[string]*part{}
	for i, owner := range owners {
		owner = cmp.Or(owner, s.cfg.Instance)
		if parts[owner] == nil {
			parts[owner] = new(part)
		}
		parts[owner].add(&actions[i], i)
	}
	local := parts[s.cfg.Instance]
	if len(parts) == 0 || len(parts) == 1 && local != nil {
		return s.cfg.Local.Settle(ctx, name, actions)
	}
	out := make([]subscriptions.Result, len(actions))
	delete(parts, s.cfg.Instance)
	var all sync.WaitGroup
	for owner, p := range parts {
		all.Go(func() { p.fill(out, s.settleFor(ctx, owner, name, p.actions)) })
	}
	var err error
	if local != nil {
		var results []subscriptions.Result
		if results, err = s.cfg.Local.Settle(ctx, name, local.actions); err == nil {
			local.fill(out, results)
		}
	}
	all.Wait()
	if err != nil && errors.Is(err, subscriptions.ErrUnavailable) {
		// The results of the peers are known.
		local.fill(out, unavailable(len(local.actions), err.Error()))
		err = nil
	}
	return out, err
}

func (p *part) fill(out, results []subscriptions.Result) {
	for i, at := range p.at {
		out[at] = results[i]
	}
}

func unavailable(n int, reason string) []subscriptions.Result {
	return slices.Repeat([]subscriptions.Result{{Code: subscriptions.CodeUnavailable, Error: reason}}, n)
}

// settleFor applies actions at a peer.
func (s *Service) settleFor(ctx context.Context, owner, name string, actions []subscriptions.Settle) []subscriptions.Result {
	find := func(reports []subscriptions.InstanceStatus) int {
		return slices.IndexFunc(reports, func(p subscriptions.InstanceStatus) bool { return p.Instance == owner })
	}
	reports, err := s.reports(ctx, name, refresh)
	at := find(reports)
	switch {
	case at >= 0:
	case err != nil:
		return unavailable(len(actions), "the owner is not known while the database is unavailable")
	default:
		return gone(len(actions))
	}
	p := reports[at]
	results, err := s.settleAt(ctx, p, name, actions)
	switch {
	case err == nil:
		return results
	case errors.Is(err, errMisdirected):
		return gone(len(actions))
	case errors.Is(err, errTransport):
		s.cfg.Logger.WarnContext(ctx, "failed to settle at an instance", "subscription", name, "instance", owner, "address", p.Address, "err", err)
		return unavailable(len(actions), "the owner does not answer")
	default:
		return unavailable(len(actions), "the owner is unavailable")
	}
}

// gone is the result for an owner that has stopped: the lease may be alive at the next one.
func gone(n int) []subscriptions.Result {
	return unavailable(n, "the owner has stopped, and no other instance has the partition of the message yet; repeat the request")
}

// Status implements subscriptions.Service. The result contains the consumers of all instances. Peers that do not answer are
// shown as the local engine knows them.
func (s *Service) Status(ctx context.Context, name string) (subscriptions.Status, error) {
	var answers []response
	var asking sync.WaitGroup
	asking.Go(func() { // while the local engine reads
		bounded, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
		defer cancel()
		peers, err := s.alive(bounded, name) // consumers wait also where no partition is
		if err != nil {
			peers = s.peers(ctx, name)
		}
		answers = s.everywhere(bounded, peers, name, opStatus, struct{}{})
	})
	st, err := s.cfg.Local.Status(ctx, name)
	asking.Wait()
	if err != nil {
		return st, err
	}
	st.Consumers = s.consumers(name)
	for _, body := range answers {
		var of subscriptions.Status
		if body.err != nil || json.Unmarshal(body.out, &of) != nil {
			continue
		}
		st.Consumers = append(st.Consumers, of.Consumers...)
		for _, p := range of.Partitions {
			if p.Owner != body.peer.Instance {
				continue
			}
			at := slices.IndexFunc(st.Partitions, func(q subscriptions.PartitionStatus) bool { return q.Topic == p.Topic && q.Partition == p.Partition })
			switch {
			case at < 0:
				st.Partitions = append(st.Partitions, p)
			case st.Partitions[at].Owner != s.cfg.Instance:
				st.Partitions[at] = p
			}
		}
	}
	slices.SortFunc(st.Partitions, func(a, b subscriptions.PartitionStatus) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	st.AddPartitions()
	return st, nil
}

// Progress implements subscriptions.Service. Without an answer of the owner it is the state
// by the database and Kafka.
func (s *Service) Progress(ctx context.Context, name string, at subscriptions.Place) (subscriptions.Progress, error) {
	out, err := s.cfg.Local.Progress(ctx, name, at)
	if err != nil || out.Owner != "" {
		return out, err
	}
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	peers, err := s.alive(bounded, name)
	if err != nil {
		return out, err
	}
	silent := false
	for _, body := range s.everywhere(bounded, peers, name, opProgress, at) {
		var of subscriptions.Progress
		if body.err != nil || json.Unmarshal(body.out, &of) != nil {
			silent = true
		} else if of.Owner == body.peer.Instance {
			return of, nil
		}
	}
	if silent && (out.State == subscriptions.ProgressWaiting || out.State == subscriptions.ProgressDelayed) {
		out.Detail = "an instance does not answer: it may be processing the message"
	}
	return out, nil
}

// alive returns the peers that run, also the ones that had no partitions when they
// reported last.
func (s *Service) alive(ctx context.Context, name string) (peers []subscriptions.InstanceStatus, err error) {
	reports, err := s.reports(ctx, name, refresh)
	if err != nil {
		return nil, errors.Join(subscriptions.ErrUnavailable, err)
	}
	for _, p := range reports {
		if p.Address != "" && s.fresh(p) {
			peers = append(peers, p)
		}
	}
	return peers, nil
}

// Leases implements subscriptions.Service.
func (s *Service) Leases(ctx context.Context, name, cursor string, limit int) (subscriptions.LeasePage, error) {
	own, err := s.cfg.Local.Leases(ctx, name, cursor, limit)
	if err != nil {
		return own, err
	}
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	peers, err := s.alive(bounded, name)
	if err != nil {
		return own, err
	}
	pages := make([]subscriptions.LeasePage, len(peers))
	for i, body := range s.everywhere(bounded, peers, name, opLeases, listLeases{cursor, limit}) {
		if body.err != nil || json.Unmarshal(body.out, &pages[i]) != nil {
			pages[i] = subscriptions.LeasePage{Unknown: []string{peers[i].Instance}}
		}
	}
	return own.Merge(pages, limit)
}

// EndLease implements subscriptions.Service.
func (s *Service) EndLease(ctx context.Context, name string, lease subscriptions.LeaseID, action subscriptions.Action, principal string) error {
	err := s.cfg.Local.EndLease(ctx, name, lease, action, principal)
	if !errors.Is(err, subscriptions.ErrLeaseEnded) {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	peers, unknown := s.alive(bounded, name)
	if unknown != nil {
		return unknown
	}
	for _, body := range s.everywhere(bounded, peers, name, opEndLease, endLease{lease, action, principal}) {
		switch {
		case body.err == nil:
			return nil
		case !errors.Is(body.err, subscriptions.ErrLeaseEnded):
			unknown = errors.Join(subscriptions.ErrUnavailable, body.err)
		}
	}
	return cmp.Or(unknown, err)
}

// Purge implements subscriptions.Service.
func (s *Service) Purge(ctx context.Context, name string, p subscriptions.Purge, principal string) (int64, error) {
	if p.Before.IsZero() {
		p.Before = time.Now() // the same in all instances
	}
	n, err := s.cfg.Local.Purge(ctx, name, p, principal)
	if err != nil {
		return n, err
	}
	peers, err := s.alive(ctx, name) // the last report of one may be older than its partitions
	if err != nil {
		return n, err
	}
	var errs []error
	for _, body := range s.everywhere(ctx, peers, name, opPurge, purge{p, principal}) {
		m, parseErr := strconv.ParseInt(string(body.out), 10, 64)
		if err := errors.Join(body.err, parseErr); err != nil {
			errs = append(errs, errors.Join(subscriptions.ErrUnavailable, err))
			continue
		}
		n += m
	}
	return n, errors.Join(errs...)
}

// response is that of a peer.
type response struct {
	peer subscriptions.InstanceStatus
	out  []byte
	err  error
}

// everywhere sends an operation to peers.
func (s *Service) everywhere(ctx context.Context, peers []subscriptions.InstanceStatus, name, op string, in any) []response {
	out := make([]response, len(peers))
	var all sync.WaitGroup
	for i, p := range peers {
		all.Go(func() {
			body, err := s.call(ctx, p, name, op, in)
			out[i] = response{p, body, err}
		})
	}
	all.Wait()
	return out
}
