package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/turn"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// memory is a database in memory: a Store and DeadLetters with the guarantees of the real
// ones, and injectable failures.
type memory struct {
	mu          sync.Mutex
	resources   map[string]store.Resource
	epochs      map[store.Partition]int64
	owners      map[store.Partition]string
	handOvers   map[store.Partition][]byte
	rows        map[store.Partition]map[int64]store.Stored
	skips       map[string]subscriptions.Skip
	topicIDs    map[store.Partition][16]byte
	instances   map[string]subscriptions.InstanceStatus
	deadLetters map[gocql.UUID]dlq.DeadLetter
	requests    []dlq.Request
	deleted     []store.Deleted
	saved       int
	fault       func(op string) (applied bool, err error)
	refused     string                // name of an event whose dead letter cannot be written
	trims       func()                // called without the lock before each Trim
	handsOver   func(store.Partition) // called without the lock before leases are stored
	// saves is called without the lock in each Save. With an error the rows are stored, if
	// applied. Meanwhile no leases are handed over, as in package store.
	saves   func(context.Context) (applied bool, err error)
	writing turn.Turn
}

func newMemory() *memory {
	return &memory{
		writing: turn.New(), resources: make(map[string]store.Resource), epochs: make(map[store.Partition]int64), owners: make(map[store.Partition]string), handOvers: make(map[store.Partition][]byte), rows: make(map[store.Partition]map[int64]store.Stored),
		topicIDs: make(map[store.Partition][16]byte), skips: make(map[string]subscriptions.Skip), instances: make(map[string]subscriptions.InstanceStatus), deadLetters: make(map[gocql.UUID]dlq.DeadLetter),
	}
}

// do runs f with the lock, with the fault of the operation.
func (m *memory) do(op string, f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		if applied, err := m.fault(op); err != nil {
			if applied {
				_ = f()
			}
			return err
		}
	}
	return f()
}

func (m *memory) fail(f func(op string) (bool, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

func (m *memory) Get(_ context.Context, name string) (r store.Resource, err error) {
	err = m.do("get", func() error {
		var ok bool
		if r, ok = m.resources[name]; !ok {
			return subscriptions.ErrNotFound
		}
		return nil
	})
	return r, err
}

func (m *memory) List(context.Context) (out []store.Resource, err error) {
	err = m.do("list", func() error {
		for _, name := range slices.Sorted(maps.Keys(m.resources)) {
			out = append(out, m.resources[name])
		}
		return nil
	})
	return out, err
}

// change applies f to a resource and increments its version.
func (m *memory) change(name string, f func(*store.Resource)) (r store.Resource, err error) {
	err = m.do("change", func() error {
		r = m.resources[name]
		if r.Name == "" {
			return subscriptions.ErrNotFound
		}
		r.Version++
		f(&r)
		m.resources[name] = r
		return nil
	})
	return r, err
}

func (m *memory) Put(_ context.Context, s subscriptions.Subscription, _ string) (r store.Resource, err error) {
	err = m.do("put", func() error {
		r = m.resources[s.Name]
		s.Version, s.CreatedAt = r.Version+1, r.CreatedAt
		if s.CreatedAt.IsZero() {
			s.CreatedAt = time.Now()
		}
		if s.KeepPaused {
			s.Paused = r.Paused
		}
		s.KeepPaused = false
		r.Subscription = s
		m.resources[s.Name] = r
		return nil
	})
	return r, err
}

func (m *memory) Delete(_ context.Context, name string, _ int64, _ string) error {
	return m.do("delete", func() error {
		if r, ok := m.resources[name]; ok {
			m.deleted = append(m.deleted, store.Deleted{Incarnation: r.Incarnation(), At: time.Now()})
		}
		delete(m.resources, name)
		return nil
	})
}

func (m *memory) Pause(_ context.Context, name, _ string) (store.Resource, error) {
	return m.change(name, func(r *store.Resource) { r.Paused = true })
}

func (m *memory) Resume(_ context.Context, name, _ string) (store.Resource, error) {
	return m.change(name, func(r *store.Resource) { r.Paused = false })
}

func (m *memory) Seek(_ context.Context, name string, s subscriptions.Seek, _ string) (store.Resource, error) {
	return m.change(name, func(r *store.Resource) {
		r.AddSeek(s, time.Now())
	})
}

func (m *memory) NotePurge(_ context.Context, name string, before time.Time, _ string) error {
	_, err := m.change(name, func(r *store.Resource) { r.Purge = store.Purge{Before: before, At: time.Now()} })
	return err
}

func (m *memory) ReceiptKey(context.Context) (key []byte, err error) {
	err = m.do("key", func() error { key = []byte("0123456789abcdef0123456789abcdef"); return nil })
	return key, err
}

func (m *memory) Report(_ context.Context, _ string, i subscriptions.InstanceStatus) error {
	return m.do("report", func() error { m.instances[i.Instance] = i; return nil })
}

func (m *memory) Instances(context.Context, string) (out []subscriptions.InstanceStatus, err error) {
	err = m.do("instances", func() error {
		out = slices.SortedFunc(maps.Values(m.instances), func(a, b subscriptions.InstanceStatus) int { return cmp.Compare(a.Instance, b.Instance) })
		return nil
	})
	return out, err
}

func (m *memory) ClaimPartition(_ context.Context, p store.Partition, owner string) (epoch int64, err error) {
	err = m.do("claim", func() error { m.epochs[p]++; epoch, m.owners[p] = m.epochs[p], owner; return nil })
	return epoch, err
}

func (m *memory) Owner(_ context.Context, p store.Partition) (o store.Owner, err error) {
	err = m.do("owner", func() error { o = store.Owner{Epoch: m.epochs[p], Owner: m.owners[p]}; return nil })
	return o, err
}

func (m *memory) HandOver(_ context.Context, p store.Partition) (leases []byte, err error) {
	err = m.do("hand-over", func() error { leases = m.handOvers[p]; return nil })
	return leases, err
}

func (m *memory) SetHandOver(_ context.Context, p store.Partition, epoch int64, leases []byte) error {
	if m.handsOver != nil && leases != nil {
		m.handsOver(p)
	}
	m.writing.Lock()
	defer m.writing.Unlock()
	return m.write("set hand-over", p, epoch, func(map[int64]store.Stored) { m.handOvers[p] = leases })
}

func (m *memory) TopicID(_ context.Context, p store.Partition) (id [16]byte, err error) {
	err = m.do("topic id", func() error { id = m.topicIDs[p]; return nil })
	return id, err
}

func (m *memory) SetTopicID(_ context.Context, p store.Partition, epoch int64, id [16]byte) error {
	return m.write("set topic id", p, epoch, func(map[int64]store.Stored) { m.topicIDs[p] = id })
}

func (m *memory) AddSkip(_ context.Context, p store.Partition, k subscriptions.Skip) error {
	return m.do("skip", func() error {
		m.skips[fmt.Sprint(p, k.Generation, k.From)] = k
		return nil
	})
}

func (m *memory) Skips(context.Context, string) (out []subscriptions.Skip, err error) {
	err = m.do("skips", func() error { out = slices.Collect(maps.Values(m.skips)); return nil })
	return out, err
}

func (m *memory) AcknowledgeSkips(_ context.Context, _, principal string) (n int, err error) {
	err = m.do("acknowledge skips", func() error {
		for key, k := range m.skips {
			k.AcknowledgedAt, k.AcknowledgedBy = time.Now(), principal
			m.skips[key] = k
			n++
		}
		return nil
	})
	return n, err
}

func (m *memory) Messages(_ context.Context, p store.Partition) (out []store.Stored, err error) {
	err = m.do("messages", func() error {
		for _, offset := range slices.Sorted(maps.Keys(m.rows[p])) {
			r := m.rows[p][offset]
			r.RecordAt, r.Record = r.Record.Timestamp, nil
			out = append(out, r)
		}
		return nil
	})
	return out, err
}

func (m *memory) Message(_ context.Context, p store.Partition, offset int64) (out store.Stored, err error) {
	err = m.do("message", func() error {
		var ok bool
		if out, ok = m.rows[p][offset]; !ok {
			return store.ErrNoRecord
		}
		return nil
	})
	return out, err
}

func (m *memory) Record(_ context.Context, p store.Partition, offset int64) (rec *kgo.Record, err error) {
	err = m.do("record", func() error {
		r, ok := m.rows[p][offset]
		if !ok {
			return store.ErrNoRecord
		}
		rec = r.Record
		return nil
	})
	return rec, err
}

// write runs f if the epoch is the current one.
func (m *memory) write(op string, p store.Partition, epoch int64, f func(rows map[int64]store.Stored)) error {
	return m.do(op, func() error {
		if m.epochs[p] != epoch {
			return fmt.Errorf("%s: %w", op, store.ErrFenced)
		}
		if m.rows[p] == nil {
			m.rows[p] = make(map[int64]store.Stored)
		}
		f(m.rows[p])
		return nil
	})
}

func (m *memory) Save(ctx context.Context, p store.Partition, epoch int64, messages []store.Stored) error {
	if m.saves != nil {
		m.writing.Lock()
		defer m.writing.Unlock()
		if applied, err := m.saves(ctx); err != nil {
			if applied {
				_ = m.save(p, epoch, messages)
			}
			return err
		}
	}
	return m.save(p, epoch, messages)
}

func (m *memory) save(p store.Partition, epoch int64, messages []store.Stored) error {
	return m.write("save", p, epoch, func(rows map[int64]store.Stored) {
		for _, r := range messages {
			if r.Record == nil {
				r.Record = rows[r.Offset].Record
			}
			rows[r.Offset] = r
			m.saved++
		}
	})
}

func (m *memory) Remove(_ context.Context, p store.Partition, epoch int64, offsets []int64) error {
	return m.write("remove", p, epoch, func(rows map[int64]store.Stored) {
		for _, o := range offsets {
			delete(rows, o)
		}
	})
}

func (m *memory) RemoveAll(_ context.Context, p store.Partition, epoch int64) error {
	return m.write("remove all", p, epoch, func(rows map[int64]store.Stored) { clear(rows) })
}

func (m *memory) Write(_ context.Context, d *dlq.DeadLetter) (st dlq.Status, err error) {
	err = m.do("dead letter", func() error {
		if m.refused != "" && d.Headers["name"] == m.refused {
			return errTest
		}
		if old, ok := m.deadLetters[d.EventID]; ok {
			if !dlq.SameRecord(&old, d) {
				return dlq.ErrOtherRecord
			}
			st = old.Status
			return nil
		}
		m.deadLetters[d.EventID], st = *d, d.Status
		return nil
	})
	return st, err
}

func (m *memory) Read(_ context.Context, id gocql.UUID) (d dlq.DeadLetter, err error) {
	err = m.do("read dead letter", func() error {
		var ok bool
		if d, ok = m.deadLetters[id]; !ok {
			return dlq.ErrNotFound
		}
		return nil
	})
	return d, err
}

func (m *memory) Chains(_ context.Context, table string, f func(dlq.ChainEntry) error) error {
	return m.do("chains", func() error {
		for id, d := range m.deadLetters {
			if d.Table != table || !open(d.Status) {
				continue
			}
			if err := f(dlq.ChainEntry{EventID: id, AggregateID: d.AggregateID, Topic: d.Topic, Status: d.Status, Unblocked: d.Unblocked, ClaimedBy: d.ClaimedBy}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (m *memory) FirstChains(ctx context.Context, table string, _ int, f func(dlq.ChainEntry)) (more bool, err error) {
	return false, m.Chains(ctx, table, func(c dlq.ChainEntry) error { f(c); return nil })
}

func (m *memory) RequestedTables(context.Context) (out []string, err error) {
	err = m.do("requested tables", func() error {
		for _, r := range m.requests {
			out = append(out, r.Table)
		}
		slices.Sort(out)
		out = slices.Compact(out)
		return nil
	})
	return out, err
}

func (m *memory) ListDeleted(context.Context) (out []store.Deleted, err error) {
	err = m.do("deleted", func() error { out = slices.Clone(m.deleted); return nil })
	return out, err
}

func (m *memory) Clean(_ context.Context, incarnation string) error {
	return m.do("clean", func() error {
		m.deleted = slices.DeleteFunc(m.deleted, func(d store.Deleted) bool { return d.Incarnation == incarnation })
		for p := range m.rows {
			if p.Subscription == incarnation {
				delete(m.rows, p)
			}
		}
		return nil
	})
}

func (m *memory) Trim(_ context.Context, p store.Partition, epoch, first int64) error {
	if m.trims != nil {
		m.trims()
	}
	return m.write("trim", p, epoch, func(rows map[int64]store.Stored) {
		for o := range rows {
			if o >= 0 && o < first {
				panic("a stored message is below the beginning")
			}
		}
	})
}

// rowCount returns the number of stored messages.
func (m *memory) rowCount() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, rows := range m.rows {
		n += len(rows)
	}
	return n
}

func (m *memory) letters() (out []dlq.DeadLetter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.deadLetters))
}
