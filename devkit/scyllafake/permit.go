package scyllafake

import (
	"cmp"
	"fmt"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// Access is what a statement of a user needs, in the words of GRANT.
type Access struct {
	// User is the name of Config.Users.
	User string
	// Keyspace and Table are the resource; Table is empty for a keyspace.
	Keyspace, Table string
	// Permission is SELECT, MODIFY, CREATE, ALTER or DROP.
	Permission string
}

// publicTables are the system tables that every user may read, besides the tables of system_schema.
var publicTables = map[string]bool{"local": true, "peers": true, "peers_v2": true}

// permit returns Unauthorized if the user of the connection lacks a permission that the statement
// needs. As on a real node, a conditional statement needs SELECT besides MODIFY, and a write does
// not need a permission on the CDC log.
func (c *conn) permit(st *statement) error {
	permitted := c.s.cfg.Permit
	if permitted == nil {
		return nil
	}
	for _, a := range accesses(st.keyspace, st.parsed, st.plan) {
		if name := c.user.Load(); name != nil {
			a.User = *name
		}
		if permitted(a) {
			continue
		}
		on := "<keyspace " + a.Keyspace + ">"
		if a.Table != "" {
			on = fmt.Sprintf("<table %s.%s>", a.Keyspace, a.Table)
		}
		return cqlerr.New(cqlerr.Unauthorized, "User %s has no %s permission on %s or any of its parents", a.User, a.Permission, on)
	}
	return nil
}

// accesses returns what a statement needs; plan is nil for a schema statement.
func accesses(keyspace string, parsed cql.Statement, plan *engine.Plan) (out []Access) {
	need := func(of cql.Name, permissions ...string) {
		for _, p := range permissions {
			out = append(out, Access{Keyspace: cmp.Or(of.Keyspace, keyspace), Table: of.Name, Permission: p})
		}
	}
	write := func(of cql.Name) {
		need(of, "MODIFY")
		if plan.LWT {
			need(of, "SELECT")
		}
	}
	switch s := parsed.(type) {
	case *cql.Select:
		if ks := cmp.Or(s.From.Keyspace, keyspace); ks != "system_schema" && (ks != "system" || !publicTables[s.From.Name]) {
			need(s.From, "SELECT")
		}
	case *cql.Insert:
		write(s.Table)
	case *cql.Update:
		write(s.Table)
	case *cql.Delete:
		write(s.Table)
	case *cql.Batch:
		for _, one := range s.Statements {
			out = append(out, accesses(keyspace, one, plan)...)
		}
	case *cql.CreateKeyspace:
		need(cql.Name{Keyspace: s.Keyspace}, "CREATE")
	case *cql.DropKeyspace:
		need(cql.Name{Keyspace: s.Keyspace}, "DROP")
	case *cql.CreateTable:
		need(cql.Name{Keyspace: s.Table.Keyspace}, "CREATE")
	case *cql.AlterTable:
		need(s.Table, "ALTER")
	case *cql.DropTable:
		need(s.Table, "DROP")
	case *cql.Truncate:
		need(s.Table, "MODIFY")
	}
	return out
}
