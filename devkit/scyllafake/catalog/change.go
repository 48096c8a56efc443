package catalog

// The values of Change.Kind and Change.Target, as the protocol spells them.
const (
	Created = "CREATED"
	Updated = "UPDATED"
	Dropped = "DROPPED"

	TargetKeyspace = "KEYSPACE"
	TargetTable    = "TABLE"
	TargetType     = "TYPE"
)

// Change is one change of the schema, as events and results tell of it.
type Change struct {
	Kind, Target string
	Keyspace     string
	Object       string // table or type; empty for keyspaces
}
