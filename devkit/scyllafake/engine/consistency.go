package engine

import (
	"strconv"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

var levelNames = map[Consistency]string{
	Any: "ANY", One: "ONE", Two: "TWO", Three: "THREE", Quorum: "QUORUM", All: "ALL",
	LocalQuorum: "LOCAL_QUORUM", EachQuorum: "EACH_QUORUM", Serial: "SERIAL", LocalSerial: "LOCAL_SERIAL", LocalOne: "LOCAL_ONE",
}

// String returns the level's name in CQL.
func (c Consistency) String() string { return levelNames[c] }

func (c Consistency) serial() bool { return c == Serial || c == LocalSerial }

// replicas returns the replication factor of a keyspace, in total and in the node's own
// data centre.
func (e *Engine) replicas(keyspace string) (total, local int) {
	ks := e.schema.Schema().Keyspaces[keyspace]
	if ks == nil {
		return 1, 1
	}
	class := ks.Replication["class"]
	factor := func(s string) int {
		n, _ := strconv.Atoi(strings.TrimSpace(s))
		return n
	}
	switch class[strings.LastIndexByte(class, '.')+1:] {
	case "SimpleStrategy":
		n := factor(ks.Replication["replication_factor"])
		return n, n
	case "NetworkTopologyStrategy":
		for dc, n := range ks.Replication {
			if dc != "class" && dc != "replication_factor" {
				total += factor(n)
			}
		}
		return total, factor(ks.Replication[e.dc])
	}
	return 1, 1 // LocalStrategy, EverywhereStrategy
}

// available returns nil if the live nodes can serve the keyspace at a level, else a
// *cqlerr.Error with code Unavailable.
func (e *Engine) available(keyspace string, cl Consistency) error {
	total, local := e.replicas(keyspace)
	alive := min(total, e.cluster.Alive())
	if total > 0 && local == 0 {
		alive = 0 // the nodes contain none
	}
	required := 1
	switch cl {
	case Two:
		required = 2
	case Three:
		required = 3
	case Quorum, EachQuorum, Serial:
		required = total/2 + 1
	case LocalQuorum, LocalSerial:
		required = local/2 + 1
	case All:
		required = total
	}
	if alive >= required {
		return nil
	}
	return unavailable(cl, required, alive)
}

func unavailable(cl Consistency, required, alive int) error {
	return &cqlerr.Error{
		Code:        cqlerr.Unavailable,
		Message:     "Cannot achieve consistency level for cl " + cl.String() + ". Requires " + strconv.Itoa(required) + ", alive " + strconv.Itoa(alive),
		Consistency: uint16(cl), BlockFor: int32(required), Received: int32(alive),
	}
}

// checkWrite refuses a write that too few nodes can serve: first the batchlog, for which a
// logged batch in a cluster needs another node except at ANY, then the write itself.
func (e *Engine) checkWrite(kind OpKind, muts []*store.Mutation, cl Consistency) error {
	if kind == OpLoggedBatch && cl != Any && e.cluster.Nodes() > 1 && e.cluster.Alive() < 2 {
		return unavailable(One, 1, 0)
	}
	for i, m := range muts {
		if i > 0 && m.Table.Keyspace == muts[i-1].Table.Keyspace {
			continue
		}
		if err := e.available(m.Table.Keyspace, cl); err != nil {
			return err
		}
	}
	return nil
}

// checkRead refuses levels that a read may not have or cannot reach.
func (e *Engine) checkRead(t *catalog.Table, cl Consistency) error {
	if cl == Any || cl == EachQuorum {
		return cqlerr.Invalidf("%s ConsistencyLevel is only supported for writes", cl)
	}
	return e.available(t.Keyspace, cl)
}

// countError returns the error of a read of too few replicas. That of a count in newer
// releases is a server error (recording failures.tablets).
func (e *Engine) countError(q *selectPlan, err error) error {
	u, ok := err.(*cqlerr.Error)
	if !ok || u.Code != cqlerr.Unavailable || !q.count || !e.version.HasCDCOnTablets() {
		return err
	}
	return cqlerr.New(cqlerr.Server, "%s: exceptions::unavailable_exception (%s)", u.Message, u.Message)
}

// checkSerial refuses a serial read of anything but one partition, and, as newer
// releases do, one against the clustering order: that one has the form of a timeout,
// whatever the partition contains.
func (s *selection) checkSerial(v catalog.Version) error {
	if !s.params.Consistency.serial() {
		return nil
	}
	if !s.src.byKey || len(s.src.keys) != 1 {
		return cqlerr.Invalidf("SERIAL/LOCAL_SERIAL consistency may only be requested for one partition at a time")
	}
	if t := s.q.table; s.q.reversed && v.RefusesReversedSerialReads() {
		return &cqlerr.Error{
			Code:        cqlerr.ReadTimeout,
			Message:     "Operation timed out for " + t.Keyspace + "." + t.Name + " - received only 0 responses from 1 CL=ANY.",
			Consistency: uint16(Any), BlockFor: 1,
		}
	}
	return nil
}

// casTimeout returns the error for a conditional write that was decided but could not
// be carried out at the requested level.
func casTimeout(t *catalog.Table, cl Consistency, unavailable error) error {
	u := unavailable.(*cqlerr.Error)
	return &cqlerr.Error{
		Code: cqlerr.WriteTimeout,
		Message: "Operation timed out for " + t.Keyspace + "." + t.Name + " - received only " + strconv.Itoa(int(u.Received)) +
			" responses from " + strconv.Itoa(int(u.BlockFor)) + " CL=" + cl.String() + ".",
		Consistency: uint16(cl), Received: u.Received, BlockFor: u.BlockFor, WriteType: "CAS",
	}
}
