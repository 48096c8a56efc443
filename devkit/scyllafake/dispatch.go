package scyllafake

import (
	"bytes"
	"strings"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/ddl"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/wire"
)

// run executes a QUERY, PREPARE, EXECUTE or BATCH and sends the response, unless it
// returns an error.
func (c *conn) run(req request) error {
	switch req.header.Opcode {
	case wire.OpQuery:
		q, err := wire.ReadQuery(req.header, req.body)
		if err != nil {
			return err
		}
		st, err := c.s.parse(c.currentKeyspace(), c.node.ownRows(q.Text))
		if err != nil {
			return err
		}
		return c.perform(req, st, q.Options, nil)
	case wire.OpOptions:
		c.answer(req, wire.OpSupported, 0, func(b []byte) []byte {
			return wire.AppendSupported(b, c.s.supportedOptions(c.shard))
		})
		return nil
	case wire.OpPrepare:
		text, err := wire.ReadPrepare(req.header, req.body)
		if err != nil {
			return err
		}
		return c.prepare(req, text)
	case wire.OpExecute:
		x, err := wire.ReadExecute(req.header, req.body, c.metadataID.Load())
		if err != nil {
			return err
		}
		st, err := c.s.statements.get(x.ID, c.s.catalog.Schema())
		if err != nil {
			return err
		}
		return c.performPrepared(req, st, x)
	default:
		return c.batch(req)
	}
}

// parse parses and plans a text, unless it is prepared.
func (s *Server) parse(keyspace, text string) (*statement, error) {
	id := newPreparedID(keyspace, text)
	schema := s.catalog.Schema()
	if st := s.statements.find(id, schema); st != nil {
		return st, nil
	}
	parsed, err := cql.Parse(text)
	if err != nil {
		return nil, cqlerr.New(cqlerr.Syntax, "%s", s.syntaxText(err.Error()))
	}
	st := &statement{id: id, keyspace: keyspace, parsed: parsed, schema: schema}
	switch p := parsed.(type) {
	case *cql.Select, *cql.Insert, *cql.Update, *cql.Delete, *cql.Batch:
		if st.plan, err = s.engine.Plan(keyspace, parsed); err != nil {
			return nil, err
		}
		st.columns = wire.NewColumns(st.plan.Result, s.version.HasGlobalSpec())
		st.metadataID = metadataIDOf(st.plan.Result)
	case *cql.Unsupported:
		return nil, cqlerr.Unsupported(p.What)
	}
	return st, nil
}

// syntaxText returns the text of a syntax error as the release has it.
func (s *Server) syntaxText(text string) string {
	if !s.version.AtLeast(2025, 4) {
		return text
	}
	if at, _, ok := strings.Cut(text, "  : syntax error..."); ok {
		return at + " : Syntax error"
	}
	if at, what, ok := strings.Cut(text, " missing "); ok && strings.HasPrefix(text, "line ") {
		token, _, _ := strings.Cut(what, " at ")
		return at + " : Missing " + token
	}
	return text
}

// prepare executes PREPARE. It does not check the names in schema statements.
func (c *conn) prepare(req request, text string) error {
	st, err := c.s.parse(c.currentKeyspace(), c.node.ownRows(text))
	if err != nil {
		return err
	}
	c.s.statements.put(st)
	prefix := c.prefix(req, nil)
	columns := st.columns
	if c.metadataID.Load() {
		columns.ID = st.metadataID
	}
	c.answer(req, wire.OpResult, prefix.flags, func(b []byte) []byte {
		return wire.AppendPrepared(prefix.append(b), req.header.Version, st.id[:], st.plan, columns, c.lwtMark.Load())
	})
	return nil
}

// performPrepared executes EXECUTE. A client whose metadata has another id gets the metadata and
// the id of now.
func (c *conn) performPrepared(req request, st *statement, x wire.Execute) error {
	if c.metadataID.Load() && st.plan != nil && st.plan.Result != nil {
		if id := st.metadataID; !bytes.Equal(id, x.MetadataID) {
			x.Options.SkipMetadata = false
			return c.perform(req, st, x.Options, id)
		}
	}
	return c.perform(req, st, x.Options, nil)
}

// perform executes a statement and sends the response, with an id of the metadata unless
// it is nil.
func (c *conn) perform(req request, st *statement, o wire.Options, metadataID []byte) error {
	if err := c.permit(st); err != nil {
		return err
	}
	if st.plan == nil {
		return c.performSchema(req, st)
	}
	o.ServerTimestamp = c.timestamp
	res, err := c.s.engine.Execute(c.s.ctx, st.plan, o.Params)
	if err != nil {
		return err
	}
	var routing []byte
	if req.header.Opcode == wire.OpExecute {
		routing = c.s.routing(c, res)
	}
	c.answerResult(req, res, routing, func() wire.Columns {
		columns := st.resultColumns(res)
		if o.SkipMetadata {
			columns.Specs = nil
		}
		columns.ID = metadataID
		return columns
	})
	return nil
}

// answerResult sends the result of a data statement, with a routing payload unless it is
// nil.
func (c *conn) answerResult(req request, res *engine.Result, routing []byte, columns func() wire.Columns) {
	prefix := c.prefix(req, res.Warnings)
	if prefix.routing = routing; routing != nil {
		prefix.flags |= wire.FlagCustomPayload
	}
	c.answer(req, wire.OpResult, prefix.flags, func(b []byte) []byte {
		b = prefix.append(b)
		if res.Columns == nil {
			return wire.AppendVoid(b)
		}
		return wire.AppendRows(b, res, columns())
	})
}

// performSchema executes USE and schema statements.
func (c *conn) performSchema(req request, st *statement) error {
	prefix := c.prefix(req, nil)
	if use, ok := st.parsed.(*cql.Use); ok {
		if c.s.catalog.Schema().Keyspaces[use.Keyspace] == nil {
			return cqlerr.Invalidf("Keyspace '%s' does not exist", use.Keyspace)
		}
		c.keyspace.Store(&use.Keyspace)
		c.answer(req, wire.OpResult, prefix.flags, func(b []byte) []byte {
			return wire.AppendSetKeyspace(prefix.append(b), use.Keyspace)
		})
		return nil
	}
	// One at a time up to the events, so that all clients receive the events of two
	// statements in the same order.
	c.s.ddl.Lock()
	res, err := c.s.catalog.Execute(st.keyspace, st.parsed)
	if err == nil {
		err = c.s.announce(res)
	}
	c.s.ddl.Unlock()
	c.s.balanceIn(c.s.cfg.TabletInterval)
	if err != nil {
		return err
	}
	prefix = c.prefix(req, res.Warnings)
	c.answer(req, wire.OpResult, prefix.flags, func(b []byte) []byte {
		b = prefix.append(b)
		if res.Change == nil {
			return wire.AppendVoid(b)
		}
		return wire.AppendSchemaResult(b, *res.Change)
	})
	return nil
}

// announce gives all nodes the new schema version and sends the events of a change; s.ddl
// is held.
func (s *Server) announce(res *ddl.Result) error {
	if len(s.nodes) > 0 {
		if err := s.writeNodes(s.clock.Now()); err != nil {
			return err
		}
	}
	if len(res.Events) > 0 {
		s.statements.prune(s.catalog.Schema())
		s.publish(res.Events)
	}
	return nil
}

// ensurePaxos makes the table NAME$paxos of a table of a keyspace with tablets and sends
// the event, unless there is one.
func (s *Server) ensurePaxos(t *catalog.Table) error {
	if !s.version.HasPaxosTables() || !s.catalog.Schema().LacksPaxos(t) {
		return nil
	}
	s.ddl.Lock()
	defer s.ddl.Unlock()
	res, err := s.catalog.CreatePaxos(t)
	if err != nil {
		return err
	}
	return s.announce(res)
}

// batch executes a BATCH and sends the response.
func (c *conn) batch(req request) error {
	bt, err := wire.ReadBatch(req.header, req.body)
	if err != nil {
		return err
	}
	schema := c.s.catalog.Schema()
	items := make([]engine.BatchItem, len(bt.Items))
	for i, it := range bt.Items {
		var st *statement
		if it.ID != nil {
			st, err = c.s.statements.get(it.ID, schema)
		} else {
			st, err = c.s.parse(c.currentKeyspace(), it.Text)
		}
		if err != nil {
			return err
		}
		if st.plan == nil {
			return engine.ErrNotBatchable
		}
		if err := c.permit(st); err != nil {
			return err
		}
		items[i] = engine.BatchItem{Plan: st.plan, Values: it.Values}
	}
	bt.Options.ServerTimestamp = c.timestamp
	res, err := c.s.engine.ExecuteBatch(c.s.ctx, cql.BatchKind(bt.Kind), items, bt.Options.Params)
	if err != nil {
		return err
	}
	c.answerResult(req, res, nil, func() wire.Columns {
		columns := wire.NewColumns(res.Columns, c.s.version.HasGlobalSpec())
		if bt.Options.SkipMetadata {
			columns.Specs = nil
		}
		return columns
	})
	return nil
}

// prefix is the part before a response's own body.
type prefix struct {
	flags    byte
	tracing  uuid.UUID
	warnings []string
	routing  []byte
}

func (c *conn) prefix(req request, warnings []string) prefix {
	p := prefix{warnings: warnings}
	if req.header.Flags&wire.FlagTracing != 0 {
		p.flags |= wire.FlagTracing
		p.tracing = uuid.Must(uuid.NewUUID())
	}
	if len(warnings) > 0 && req.header.Version >= 4 {
		p.flags |= wire.FlagWarning
	}
	return p
}

func (p prefix) append(b []byte) []byte {
	if p.flags&wire.FlagTracing != 0 {
		b = append(b, p.tracing[:]...)
	}
	if p.flags&wire.FlagWarning != 0 {
		b = wire.AppendStringList(b, p.warnings)
	}
	if p.flags&wire.FlagCustomPayload != 0 {
		b = wire.AppendPayload(b, routingKey, p.routing)
	}
	return b
}
