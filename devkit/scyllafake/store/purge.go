package store

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
)

// purgeChunk is how many records are removed, with writes blocked, at a time.
const purgeChunk = 256

// Purge frees the space of dead data in a table: rows whose content is expired, deleted
// or covered by a tombstone of their partition, and finally those tombstones. Expired
// data and tombstones are kept for gc_grace_seconds, because until then they must win
// over older writes that arrive late. It returns how many rows and tombstone records it
// removed.
//
// Reads return the same before and after. Call it from time to time; it reads the whole
// table and may run concurrently with everything else.
func (s *Store) Purge(ctx context.Context, t *catalog.Table) (removed int, err error) {
	p := purger{s: s, before: s.unixNow() - int64(t.Options.GCGraceSeconds)}
	defer func() {
		if err != nil {
			err = fmt.Errorf("purge %s.%s: %w", t.Keyspace, t.Name, err)
		}
	}()
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: appendTable(nil, t.StoreID),
		UpperBound: successor(appendTable(nil, t.StoreID)),
	})
	if err != nil {
		return 0, err
	}
	defer func() {
		if e := it.Close(); err == nil {
			err = e
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		if err := p.inspect(it); err != nil {
			return p.removed, err
		}
		if len(p.found) == purgeChunk {
			if err := ctx.Err(); err != nil {
				return p.removed, err
			}
			if err := p.remove(); err != nil {
				return p.removed, err
			}
		}
	}
	if err := it.Error(); err != nil {
		return p.removed, err
	}
	return p.removed, p.remove()
}

// purger is one pass over a table.
type purger struct {
	s       *Store
	before  int64 // data that died in this second or earlier can be removed
	removed int
	found   []candidate

	partition []byte // of the last key checked
	key       []byte // scratch for the partition key
	tombs     partitionRecord
	record    []byte // that tombs refers to
	row       delta
}

// candidate is a record that can be removed if it has not changed.
type candidate struct {
	key []byte
	// covered is the deletion over the row; a partition's can only grow, because only
	// this file removes it.
	covered int64
}

// inspect checks the record under the iterator.
func (p *purger) inspect(it *pebble.Iterator) error {
	k := it.Key()
	v, err := it.ValueAndErr()
	if err != nil {
		return err
	}
	if p.partition == nil || !bytes.HasPrefix(k, p.partition) {
		_, key, n, err := splitPartition(k, p.key[:0])
		if err != nil {
			return err
		}
		p.key, p.partition = key, append(p.partition[:0], k[:n]...)
		p.tombs.reset()
	}
	suffix := k[len(p.partition):]
	if suffix[0] == kindPartition {
		p.record = append(p.record[:0], v...)
		if !p.tombs.add(p.record) {
			return errCorrupt
		}
		if p.tombsDead(&p.tombs) {
			p.found = append(p.found, candidate{key: bytes.Clone(k)})
		}
		return nil
	}
	covered := p.tombs.deleted.ts
	if suffix[0] == kindRow {
		covered = p.tombs.covering(suffix).ts
	}
	dead, err := p.rowDead(v, covered)
	if dead {
		p.found = append(p.found, candidate{bytes.Clone(k), covered})
	}
	return err
}

// rowDead reports whether a row can be removed without changing a result.
func (p *purger) rowDead(record []byte, covered int64) (bool, error) {
	p.row.reset()
	if !p.row.add(record, false) {
		return false, errCorrupt
	}
	d := &p.row
	gone := func(c *Cell) bool {
		return c.Timestamp <= covered || (c.Dead || c.TTL != 0) && c.Expiry <= p.before
	}
	goneTomb := func(t tomb) bool { return t.ts <= covered || t.at <= p.before }
	if d.hasMarker && !gone(&d.marker) || d.deleted.set() && !goneTomb(d.deleted) {
		return false, nil
	}
	for _, t := range d.tombs {
		if !goneTomb(t.tomb) {
			return false, nil
		}
	}
	for i := range d.entries {
		if !gone(&d.entries[i].Cell) {
			return false, nil
		}
	}
	return true, nil
}

// tombsDead reports whether no tombstone of a partition is needed for late writes.
func (p *purger) tombsDead(r *partitionRecord) bool {
	if r.deleted.set() && r.deleted.at > p.before {
		return false
	}
	for _, s := range r.segments {
		if s.at > p.before {
			return false
		}
	}
	return true
}

// remove removes the candidates after a second check with writes blocked.
func (p *purger) remove() error {
	if len(p.found) == 0 {
		return nil
	}
	p.s.rewrite.Lock()
	defer p.s.rewrite.Unlock()
	b := p.s.db.NewBatch()
	defer p.s.closeBatch(b)
	n := 0
	for _, c := range p.found {
		still, err := p.stillDead(c)
		if err != nil {
			return err
		}
		if !still {
			continue
		}
		if err := b.Delete(c.key, nil); err != nil {
			return err
		}
		n++
	}
	p.found = p.found[:0]
	if n == 0 {
		return nil
	}
	// Unsynced is enough: records that are not removed now will be removed later.
	if err := p.s.guarded(func() error { return b.Commit(pebble.NoSync) }); err != nil {
		return err
	}
	p.removed += n
	return nil
}

func (p *purger) stillDead(c candidate) (bool, error) {
	v, closer, err := p.s.db.Get(c.key)
	if err == pebble.ErrNotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer closer.Close()
	if len(v) == 0 {
		return false, errCorrupt
	}
	if v[0]&isPartition == 0 {
		return p.rowDead(v, c.covered)
	}
	var r partitionRecord
	r.reset()
	if !r.add(v) {
		return false, errCorrupt
	}
	if !p.tombsDead(&r) {
		return false, nil
	}
	return p.isAlone(c.key)
}

// isAlone reports whether a partition contains only its own record, which then has
// nothing to cover.
func (p *purger) isAlone(key []byte) (bool, error) {
	partition := key[:len(key)-1]
	it, err := p.s.db.NewIter(&pebble.IterOptions{
		LowerBound: append(bytes.Clone(partition), kindPartition+1),
		UpperBound: append(bytes.Clone(partition), kindEnd),
	})
	if err != nil {
		return false, err
	}
	some := it.First()
	if err := it.Error(); err != nil {
		it.Close()
		return false, err
	}
	return !some, it.Close()
}
