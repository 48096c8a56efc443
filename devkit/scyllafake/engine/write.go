package engine

import (
	"context"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// write applies the changes of an unconditional request. kind is its kind if it spans
// several partitions.
func (e *Engine) write(ctx context.Context, kind OpKind, muts []*store.Mutation, params *Params) error {
	if len(muts) == 0 {
		return nil
	}
	timed := e.arrive()
	if len(muts) == 1 {
		kind = OpWrite
	}
	if err := e.checkWrite(kind, muts, params.Consistency); err != nil {
		return err
	}
	v, err := e.before(ctx, Op{
		Kind: kind, Keyspace: muts[0].Table.Keyspace, Table: muts[0].Table.Name,
		Consistency: params.Consistency, Mutations: muts,
	})
	if err != nil {
		return err
	}
	switch {
	case v.Fate == FateLater:
		if err := e.replayLater(muts, v.Later); err != nil {
			return err
		}
	case v.Fate == FateApply || v.Err == nil && !v.Disconnect:
		if err := e.apply(muts); err != nil {
			return err
		}
		if err := timed.write(ctx, kind, muts); err != nil {
			return err
		}
	}
	return e.finish(v)
}

// before calls the hook and waits for its delay.
func (e *Engine) before(ctx context.Context, op Op) (Verdict, error) {
	if e.hook == nil {
		return Verdict{}, ctx.Err()
	}
	v := e.hook.Before(ctx, op)
	if v.Delay > 0 {
		t := time.NewTimer(v.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
	return v, ctx.Err()
}

// finish returns the error of the verdict, nil for the true response.
func (e *Engine) finish(v Verdict) error {
	if v.Disconnect {
		return ErrDisconnect
	}
	return v.Err
}

// beforeRead calls the hook for a read, and finishes decided conditional writes if the
// read is a serial one.
func (e *Engine) beforeRead(ctx context.Context, s *selection) (deadPage bool, err error) {
	kind := OpRead
	if s.params.Consistency.serial() {
		kind = OpSerialRead
		if err := e.ensurePaxos(s.q.table); err != nil {
			return false, err
		}
	}
	if e.hook != nil {
		v, err := e.before(ctx, Op{
			Kind: kind, Keyspace: s.q.table.Keyspace, Table: s.q.table.Name,
			Consistency: s.params.Consistency,
		})
		if err != nil {
			return false, err
		}
		if err := e.finish(v); err != nil {
			return false, err
		}
		deadPage = v.DeadPage
	}
	if kind != OpSerialRead || !s.found {
		return deadPage, nil
	}
	id := partitionID{s.q.table.StoreID, string(s.src.keys[0])}
	unlock := e.locks.lock(id)
	defer unlock()
	return deadPage, e.finishDecided(id)
}

// apply writes mutations and their log rows as one unit.
func (e *Engine) apply(muts []*store.Mutation) error {
	all, err := e.addLogRows(muts)
	if err != nil {
		return err
	}
	if err := e.store.Apply(all); err != nil {
		return serverError("write", err)
	}
	return nil
}

// addLogRows returns mutations with the mutations of their log rows.
func (e *Engine) addLogRows(muts []*store.Mutation) ([]*store.Mutation, error) {
	logs, err := e.cdc.Augment(muts, e.clock.Now())
	if err != nil || len(logs) == 0 {
		return muts, err
	}
	all := make([]*store.Mutation, 0, len(muts)+len(logs))
	return append(append(all, muts...), logs...), nil
}
