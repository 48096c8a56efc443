// Package permissions contains the least permissions of each command: those of its role in
// ScyllaDB and the ACLs of its user in Kafka. Its tests run the commands with them, and write
// docs/operators/permissions.md.
package permissions

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Role is the user of one command, in the database and the broker.
type Role struct {
	// Name is the name of the user in the page, Commands are what it may run.
	Name, Commands string
	Database       []Grant
	Kafka          []ACL
}

// Grant is a permission in ScyllaDB: GRANT Permission ON Resource TO role.
type Grant struct {
	Permission string
	// Resource is ALL KEYSPACES, KEYSPACE k or TABLE k.t.
	Resource string
	// Why is the reason, or the case; empty where it is obvious.
	Why string
	// Rare is a permission that is needed in some states alone, which the tests may not reach.
	Rare bool
}

// ACL is a list of operations on a resource of Kafka, or on all whose name begins with it.
type ACL struct {
	Operations []kadm.ACLOperation
	// Resource is Topic or Group.
	Resource, Name, Why string
	Prefix              bool
}

// Resources of an ACL.
const (
	Topic = "topic"
	Group = "group"
)

// The names of the page. Topics of events begin with shop., and a relay has the name outbox.
const (
	keyspace = "KEYSPACE outbox"
	events   = "shop."
	relays   = "outbox.relay."
)

// read and the other lists of operations. READ and WRITE include DESCRIBE.
var (
	read   = []kadm.ACLOperation{kmsg.ACLOperationRead}
	write  = []kadm.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationCreate, kmsg.ACLOperationDescribeConfigs}
	shared = []kadm.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationCreate}
)

var (
	ofKeyspace = []Grant{{"SELECT", keyspace, "", false}, {"MODIFY", keyspace, "", false}}
	version    = Grant{"SELECT", "TABLE system.versions", "the release of the server", false}
)

// Roles are the users of the page.
var Roles = []Role{
	{
		Name: "outbox_migrate", Commands: "`outbox schema migrate`",
		Database: []Grant{
			{"CREATE", "ALL KEYSPACES", "the keyspace; `CREATE ON KEYSPACE outbox` if it exists", false},
			{"SELECT", keyspace, "", false},
			{"MODIFY", keyspace, "", false},
			{"ALTER", keyspace, "migrations of later versions; the role that creates a keyspace has it already", true},
			{"SELECT", "TABLE system.cdc_timestamps", "whether the server has CDC on tablets", false},
			version,
		},
	},
	{
		Name: "outbox_relay", Commands: "`outbox relay`, `doctor`",
		Database: append([]Grant{
			{"SELECT", "TABLE system.cdc_timestamps", "the streams of a table with tablets", false},
			{"SELECT", "TABLE system.cdc_streams", "the same", false},
			{"SELECT", "TABLE shop.events", "each table in `relay.tables` of another keyspace", false},
			{"SELECT", "TABLE shop.events_scylla_cdc_log", "its log", false},
			version,
		}, ofKeyspace...),
		Kafka: []ACL{
			{Operations: write, Resource: Topic, Name: events, Prefix: true, Why: "events; without CREATE the topics must exist, without READ a killed relay repeats events, DESCRIBE_CONFIGS reads the size limit"},
			{Operations: write, Resource: Topic, Name: "notices", Why: "topics of messages"},
			{Operations: shared, Resource: Topic, Name: relays, Prefix: true, Why: "its control topic, with `relay.shards` or standbys"},
			{Operations: read, Resource: Group, Name: relays, Prefix: true, Why: "the group of its instances"},
		},
	},
	{Name: "outbox_orders", Commands: "`outbox orders`", Database: ofKeyspace},
	{
		Name: "outbox_messages", Commands: "`outbox messages`", Database: ofKeyspace,
		Kafka: []ACL{
			{Operations: read, Resource: Topic, Name: events, Prefix: true, Why: "event streams"},
			{Operations: read, Resource: Topic, Name: "notices", Why: "the state of messages"},
		},
	},
	{
		Name: "outbox_subscriptions", Commands: "`outbox subscriptions`", Database: ofKeyspace,
		Kafka: []ACL{
			{Operations: read, Resource: Topic, Name: events, Prefix: true},
			{Operations: read, Resource: Group, Name: "mail.", Prefix: true, Why: "the positions of the subscription mail; each has a group of its name, a dot and more"},
		},
	},
	{
		Name: "outbox_admin", Commands: "`outbox admin`, `notifier`; `audit`, `dlq`, `events`, `messages list`, `status` without the API; `subscriptions redeliver`, `verify --repair`",
		Database: append([]Grant{
			{"SELECT", "TABLE system.cdc_timestamps", "the number of waiting events, while no relay reads them", true},
			{"SELECT", "TABLE system.cdc_streams", "the same", true},
			{"SELECT", "TABLE shop.events", "the same, and rows of events", true},
			{"SELECT", "TABLE shop.events_scylla_cdc_log", "the same", true},
		}, ofKeyspace...),
		Kafka: []ACL{
			{Operations: read, Resource: Topic, Name: events, Prefix: true, Why: "pages of topics and events, continuous verification"},
			{Operations: read, Resource: Topic, Name: "notices"},
			{Operations: read, Resource: Topic, Name: relays, Prefix: true, Why: "instances and shards"},
			{Operations: read, Resource: Group, Name: relays, Prefix: true},
			{Operations: read, Resource: Group, Name: "mail.", Prefix: true, Why: "`subscriptions redeliver`: what the subscription mail has settled"},
		},
	},
	{
		Name: "outbox_verify", Commands: "`outbox verify` without `--repair`",
		Database: []Grant{{"SELECT", keyspace, "", false}},
		Kafka:    []ACL{{Operations: read, Resource: Topic, Name: events, Prefix: true}, {Operations: read, Resource: Topic, Name: "notices"}},
	},
	{Name: "outbox_tail", Commands: "`outbox tail`", Kafka: []ACL{{Operations: read, Resource: Topic, Name: events, Prefix: true}}},
}

// ACLs returns the ACLs of a role as Kafka's clients create them.
func (r *Role) ACLs() (out []*kadm.ACLBuilder) {
	for _, a := range r.Kafka {
		b := kadm.NewACLs().Allow("User:" + r.Name).AllowHosts("*").Operations(a.Operations...)
		if a.Resource == Group {
			b = b.Groups(a.Name)
		} else {
			b = b.Topics(a.Name)
		}
		pattern := kadm.ACLPatternLiteral
		if a.Prefix {
			pattern = kadm.ACLPatternPrefixed
		}
		out = append(out, b.ResourcePatternType(pattern))
	}
	return out
}

// covers reports whether a grant permits an access to a table, or to a keyspace without table.
func (g *Grant) covers(permission, keyspace, table string) bool {
	if permission != g.Permission {
		return false
	}
	switch kind, name, _ := strings.Cut(g.Resource, " "); kind {
	case "KEYSPACE":
		return name == keyspace
	case "TABLE":
		return name == keyspace+"."+table
	default:
		return true // ALL KEYSPACES
	}
}

// Page returns the part of docs/operators/permissions.md that is made of Roles.
func Page() string {
	var b strings.Builder
	for i := range Roles {
		r := &Roles[i]
		fmt.Fprintf(&b, "### %s\nFor %s.\n\n", r.Name, r.Commands)
		if len(r.Database) == 0 {
			b.WriteString("No permission in the database.\n")
		}
		why := func(text string) string {
			if text == "" {
				return ""
			}
			return " # " + strings.ReplaceAll(text, "`", "")
		}
		if len(r.Database) > 0 {
			b.WriteString("```\n")
			for _, g := range r.Database {
				fmt.Fprintf(&b, "GRANT %s ON %s TO %s;%s\n", g.Permission, g.Resource, r.Name, strings.Replace(why(g.Why), " #", " --", 1))
			}
			b.WriteString("```\n")
		}
		if len(r.Kafka) == 0 {
			b.WriteString("No ACL in Kafka.\n\n")
			continue
		}
		b.WriteString("```\n")
		for _, a := range r.Kafka {
			var operations []string
			for _, op := range a.Operations {
				operations = append(operations, "--operation "+strings.ReplaceAll(strings.ToLower(op.String()), "_", ""))
			}
			pattern := ""
			if a.Prefix {
				pattern = " --resource-pattern-type prefixed"
			}
			fmt.Fprintf(&b, "kafka-acls.sh --add --allow-principal User:%s %s --%s %s%s%s\n", r.Name, strings.Join(operations, " "), a.Resource, a.Name, pattern, why(a.Why))
		}
		b.WriteString("```\n\n")
	}
	return b.String()
}
