package ddl

import (
	"fmt"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// truncate removes a table's rows; its log keeps its own.
func (w *change) truncate(keyspace string, s *cql.Truncate) error {
	n, err := resolve(keyspace, s.Table)
	if err != nil {
		return err
	}
	t, err := w.table(n)
	if err != nil {
		return err
	}
	switch t.Kind {
	case catalog.View:
		return cqlerr.Invalidf("Cannot TRUNCATE materialized view directly; must truncate base table instead")
	case catalog.System:
		return cqlerr.Unsupported(fmt.Sprintf("TRUNCATE of %s.%s (it ruins a ScyllaDB node)", n.Keyspace, n.Name))
	}
	if err := w.c.o.Store.DropTable(t.StoreID); err != nil {
		return fmt.Errorf("truncate %s.%s: %w", n.Keyspace, n.Name, err)
	}
	return errNothing
}
