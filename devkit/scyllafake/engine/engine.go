// Package engine plans and executes CQL data statements: SELECT, INSERT, UPDATE, DELETE
// and BATCH, including conditional ones.
//
// It reads through store.Scan and writes through store.Apply; package cdc makes the log
// rows. Package ddl executes DDL, and the server reads and writes frames.
package engine

import (
	"context"
	"sync"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cdc"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine/expr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// Consistency is a protocol consistency level.
type Consistency uint16

// Consistency levels.
const (
	Any         Consistency = 0x0000
	One         Consistency = 0x0001
	Two         Consistency = 0x0002
	Three       Consistency = 0x0003
	Quorum      Consistency = 0x0004
	All         Consistency = 0x0005
	LocalQuorum Consistency = 0x0006
	EachQuorum  Consistency = 0x0007
	Serial      Consistency = 0x0008
	LocalSerial Consistency = 0x0009
	LocalOne    Consistency = 0x000A
)

// ColumnSpec is a bind or result column.
type ColumnSpec = expr.ColumnSpec

// Value is a bound value.
type Value = expr.Value

// Plan is a prepared data statement. It is bound to the schema for which it was
// planned; the server drops it when one of Tables changes. It is safe for concurrent
// use.
type Plan struct {
	Binds []ColumnSpec
	// GlobalBinds means that the bind metadata uses the global table spec.
	GlobalBinds bool
	// PKIndexes are the bind indexes of the partition key, in key order, or nil.
	PKIndexes []uint16
	// Result is nil for statements that return Void.
	Result []ColumnSpec
	// LWT means that the statement is conditional and not a batch text.
	LWT bool
	// Tables are the tables the plan depends on.
	Tables []*catalog.Table

	exec any // the engine's form of the plan
}

// Params are the parameters of a QUERY, EXECUTE or BATCH besides its text.
type Params struct {
	Values            []Value
	Consistency       Consistency
	SerialConsistency Consistency // 0 when absent
	PageSize          int32       // 0 means no paging
	PagingState       []byte
	Timestamp         int64 // microseconds; valid if HasTimestamp
	HasTimestamp      bool
	// ServerTimestamp returns the server's clock for this connection, µs, strictly
	// increasing.
	ServerTimestamp func() int64
}

// Result is the result of a data statement: Void when Columns is nil.
type Result struct {
	Columns []ColumnSpec
	// Rows is the encoded rows: for each row, each value as [bytes].
	Rows     []byte
	RowCount int32
	// PagingState is nil on the last page.
	PagingState []byte
	// Warnings are the warnings for the frame.
	Warnings []string
	// Table and Key identify the only partition that the statement names; nil if it
	// names several or none, and for batches.
	Table *catalog.Table
	Key   []byte
}

// BatchItem is one statement of a BATCH.
type BatchItem struct {
	Plan   *Plan
	Values []Value
}

// Config configures an Engine.
type Config struct {
	Store  *store.Store
	Schema catalog.Source
	CDC    *cdc.Manager
	// Hook injects faults; nil injects none.
	Hook Hook
	// Costs counts the cost of paged reads of named partitions. Nil counts nothing:
	// counting reads rows that are not returned.
	Costs *ReadCosts
	// Times makes requests take the time of a real node, whose shard of a partition
	// ShardFor returns. Nil takes no time beside the engine's own.
	Times    *NodeTimes
	ShardFor func(t *catalog.Table, key []byte) int
	// Clock is the node's wall clock. Fault hooks skew it.
	Clock store.Clock
	// Version is the release whose behaviour clients meet; the zero value is the oldest.
	Version catalog.Version
	// DataCenter is the node's own, for replication and LOCAL_ levels.
	DataCenter string
	// Cluster is that of the node.
	Cluster Cluster
	// EnsurePaxos makes the table NAME$paxos of a table before a conditional statement or
	// a serial read, unless it has one; nil makes none.
	EnsurePaxos func(t *catalog.Table) error
}

// Cluster is the cluster of a node.
type Cluster interface {
	// Nodes and Alive return how many nodes there are, and how many are up.
	Nodes() int
	Alive() int
}

// Engine executes data statements. It is safe for concurrent use.
type Engine struct {
	store    *store.Store
	schema   catalog.Source
	cdc      *cdc.Manager
	hook     Hook
	dc       string
	cluster  Cluster
	clock    *expr.Clock
	locks    stripes
	costs    *ReadCosts
	times    *NodeTimes
	shardFor func(*catalog.Table, []byte) int
	version  catalog.Version
	paxos    func(*catalog.Table) error

	mu      sync.Mutex
	closed  bool
	replays map[*replay]struct{}
	running sync.WaitGroup // replays in progress
	decided map[partitionID][]decision
}

// New returns an engine. Close stops its timers.
func New(c Config) *Engine {
	return &Engine{
		store:   c.Store,
		cluster: c.Cluster,
		schema:  c.Schema,
		cdc:     c.CDC,
		hook:    c.Hook,
		dc:      c.DataCenter,
		clock:   expr.NewClock(c.Clock),
		costs:   c.Costs,
		times:   c.Times, shardFor: c.ShardFor,
		version: c.Version,
		paxos:   c.EnsurePaxos,
		replays: map[*replay]struct{}{},
		decided: map[partitionID][]decision{},
	}
}

// Plan plans a SELECT, INSERT, UPDATE, DELETE or BATCH text against the
// current schema; keyspace is the connection's, "" if none. Errors are *cqlerr.Error.
func (e *Engine) Plan(keyspace string, stmt cql.Statement) (*Plan, error) {
	p := planner{&expr.Compiler{Schema: e.schema.Schema(), Keyspace: keyspace}}
	switch s := stmt.(type) {
	case *cql.Select:
		return p.planSelect(s)
	case *cql.Batch:
		return p.planBatch(s)
	case *cql.Insert, *cql.Update, *cql.Delete:
		return p.planModify(s)
	}
	return nil, cqlerr.Unsupported("this statement here")
}

// Execute runs a plan. Errors are *cqlerr.Error, ErrDisconnect, or ctx's.
func (e *Engine) Execute(ctx context.Context, p *Plan, params Params) (*Result, error) {
	if got, want := len(params.Values), len(p.Binds); got != want {
		return nil, cqlerr.Invalidf("Invalid amount of bind variables: expected %d received %d", want, got)
	}
	x := &expr.EvalCtx{Clock: e.clock, Vals: params.Values, Now: e.clock.Now()}
	switch q := p.exec.(type) {
	case *selectPlan:
		return e.execSelect(ctx, q, x, &params)
	case *modifyPlan:
		return e.execModify(ctx, q, x, &params)
	case *batchPlan:
		return e.execBatchText(ctx, q, x, &params)
	}
	return nil, cqlerr.New(cqlerr.Server, "plan of another engine")
}
