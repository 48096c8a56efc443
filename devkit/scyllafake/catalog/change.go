package catalog

// The values of Change.Kind and Change.Target in the protocol.
const (
	Created = "CREATED"
	Updated = "UPDATED"
	Dropped = "DROPPED"

	TargetKeyspace = "KEYSPACE"
	TargetTable    = "TABLE"
)

// Change is one change of the schema, as events and results report it.
type Change struct {
	Kind, Target string
	Keyspace     string
	Object       string // table or type; empty for keyspaces
}
