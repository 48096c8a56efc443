package doctor

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// The doctor asks the broker for the rights of the relay's user, and names each missing right, its
// topic or group, and the command that grants it.
func TestDoctor_NamesTheRightThatIsMissing(t *testing.T) {
	t.Parallel()
	const (
		read, write, create, describe = kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationCreate, kmsg.ACLOperationDescribe
		created, control, group       = "topic OrderCreated", "topic outbox.relay.orders.shards", "consumer group outbox.relay.orders"
	)
	on := func(kind kmsg.ACLResourceType, name string, ops ...kmsg.ACLOperation) (out []kfake.ACL) {
		for _, op := range ops {
			out = append(out, kfake.ACL{Resource: kind, Name: name, Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: op, Allow: true})
		}
		return out
	}
	orders := func(ops ...kmsg.ACLOperation) []kfake.ACL { return on(kmsg.ACLResourceTypeTopic, "Order", ops...) }
	shards := func(ops ...kmsg.ACLOperation) []kfake.ACL { return on(kmsg.ACLResourceTypeTopic, "outbox.", ops...) }
	groups := func(ops ...kmsg.ACLOperation) []kfake.ACL { return on(kmsg.ACLResourceTypeGroup, "outbox.", ops...) }
	join := func(all ...[]kfake.ACL) (out []kfake.ACL) {
		for _, a := range all {
			out = append(out, a...)
		}
		return out
	}
	for name, x := range map[string]struct {
		acls  []kfake.ACL
		there bool // the topics
		check string
		want  string // in the detail; empty if nothing is missing
		fix   string
	}{
		"all of a relay that is there":     {join(orders(write, read), shards(read), groups(read)), true, "", "", ""},
		"all of one that makes its topics": {join(orders(write, read, create), shards(read, create), groups(read)), false, "", "", ""},
		"none on the topic":                {join(shards(read), groups(read)), true, created, "not allowed: DESCRIBE, and with it WRITE and READ", "--operation describe --operation write --operation read --topic OrderCreated"},
		"it may not write":                 {join(orders(read), shards(read), groups(read)), true, created, "not allowed: WRITE; nothing is published to it", "--operation write --topic OrderCreated; with Redpanda: rpk security acl create --allow-principal User:relay --operation write --topic OrderCreated"},
		"it may not read back":             {join(orders(write), shards(read), groups(read)), true, created, "not allowed: READ; a relay that was killed publishes some events a second time", "--operation read --topic OrderCreated"},
		"it may only look":                 {join(orders(describe), shards(read), groups(read)), true, created, "not allowed: WRITE and READ; nothing is published to it; a relay", "--operation write --operation read --topic OrderCreated"},
		"it may not make topics":           {join(orders(write, read), shards(read, create), groups(read)), false, created, "not allowed: CREATE", "--operation create --operation write --operation read --topic OrderCreated"},
		"it may not make the control one":  {join(orders(write, read, create), shards(read), groups(read)), false, control, "not allowed: CREATE", "--operation create --operation read --topic outbox.relay.orders.shards"},
		"it may not read the control one":  {join(orders(write, read), shards(describe), groups(read)), true, control, "not allowed: READ; no instance gets a shard", "--operation read --topic outbox.relay.orders.shards"},
		"it may not see the group":         {join(orders(write, read), shards(read)), true, group, "not allowed: READ", "--operation read --group outbox.relay.orders"},
		"it may not join the group":        {join(orders(write, read), shards(read), groups(describe)), true, group, "not allowed: READ; no instance gets a shard", "--operation read --group outbox.relay.orders"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := []kfake.Opt{kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "a"), kfake.User("PLAIN", "relay", "r", x.acls...)}
			if x.there {
				opts = append(opts, kfake.SeedTopics(2, "OrderCreated", "OrderUpdated", "OrderCancelled", "outbox.relay.orders.shards"))
			}
			broker := world.StartBroker(t, opts...)
			c, err := parseConfig(t, "kafka: {password: r}", nil, "--kafka-seeds", broker.ListenAddrs()[0], "--kafka-sasl", "plain", "--kafka-username", "relay", "--relay-shards", "2", "--relay-name", "orders", "--relay-topic-replication", "1")
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, f := range checkKafka(t.Context(), c) {
				switch {
				case f.Check == x.check:
					found = true
					if f.OK || !strings.Contains(f.Detail, x.want) || !strings.Contains(f.Fix, x.fix) || !strings.Contains(f.Fix, "kafka-acls.sh --bootstrap-server "+broker.ListenAddrs()[0]) {
						t.Errorf("%+v, want %q and %q", f, x.want, x.fix)
					}
				case !f.OK && (x.check != created || !strings.HasPrefix(f.Check, "topic Order")):
					t.Errorf("%+v", f)
				}
			}
			if !found && x.check != "" {
				t.Errorf("nothing is said of %s", x.check)
			}
		})
	}
}
