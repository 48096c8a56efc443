package outbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/gocql/gocql"
)

// Column is a column of a table as system_schema.columns describes it.
type Column struct {
	Name, Type string
	// Kind is one of the kinds below, Position the place in that part of the key.
	Kind     string
	Position int
	// Descending is true for a clustering column whose highest value comes first.
	Descending bool
}

// The kinds of columns.
const (
	KindPartitionKey = "partition_key"
	KindClustering   = "clustering"
	KindStatic       = "static"
	KindRegular      = "regular"
)

// ReadColumns reads the columns of a table. It returns none if the table does
// not exist or is not readable.
func ReadColumns(ctx context.Context, session *gocql.Session, keyspace, table string) ([]Column, error) {
	if session == nil {
		return nil, errNoSession
	}
	iter := session.Query("SELECT column_name, type, kind, position, clustering_order FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?",
		keyspace, table).WithContext(ctx).Idempotent(true).Iter()
	var out []Column
	var c Column
	var order string
	for iter.Scan(&c.Name, &c.Type, &c.Kind, &c.Position, &order) {
		c.Descending = strings.EqualFold(order, "DESC")
		out = append(out, c)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the columns of %s.%s: %w", keyspace, table, err)
	}
	return out, nil
}

// columnType is a type that a mapped column may have.
type columnType string

const (
	typeUUID      columnType = "uuid"
	typeTimeUUID  columnType = "timeuuid"
	typeText      columnType = "text"
	typeBigint    columnType = "bigint"
	typeInt       columnType = "int"
	typeBlob      columnType = "blob"
	typeTimestamp columnType = "timestamp"
	typeTextMap   columnType = "map<text, text>"
	typeBoolean   columnType = "boolean"
	typeTinyint   columnType = "tinyint"
	typeSmallint  columnType = "smallint"
	typeDecimal   columnType = "decimal"
)

// parseType is the type by its CQL name.
func parseType(cql string) (columnType, bool) {
	switch cql {
	case "ascii", "varchar":
		return typeText, true
	case "frozen<map<text, text>>":
		return typeTextMap, true
	case string(typeUUID), string(typeTimeUUID), string(typeText), string(typeBigint), string(typeInt),
		string(typeBlob), string(typeTimestamp), string(typeTextMap), string(typeBoolean), string(typeTinyint), string(typeSmallint), string(typeDecimal):
		return columnType(cql), true
	default:
		return "", false
	}
}
