package doctor

import (
	"context"
	"fmt"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/relay/share"
)

// checkAgreed holds relay.shards against the number in the database: an instance with
// another one refuses to work when it is started.
func checkAgreed(ctx context.Context, c *app.Config, session *gocql.Session) Finding {
	const check = "number of shards"
	name := c.Relay.Name
	agreement := relay.Agreement{Session: session, Keyspace: c.Scylla.Keyspace, Name: name}
	n, err := agreement.Shards(ctx)
	switch {
	case cqlcode.Of(err) == gocql.ErrCodeUnauthorized:
		return Finding{check, false, err.Error(), "GRANT SELECT and MODIFY ON " + c.Scylla.Keyspace + ".relay_sharing TO the relay's role"}
	case err != nil:
		return Finding{check, false, err.Error(), "fix the reported error; no shard starts before the number can be read"}
	case n == 0:
		return Finding{check, true, fmt.Sprintf("relay.shards is %d; the first instance of relay %s stores it in relay_sharing", c.Relay.Shards, name), ""}
	case n != c.Relay.Shards:
		return Finding{
			check, false, fmt.Sprintf("relay.shards is %d, and relay %s is divided into %s (relay_sharing): an instance with this setting refuses to work", c.Relay.Shards, name, cli.Plural(n, "shard")),
			fmt.Sprintf("set relay.shards to %d; or, to divide it anew, stop all instances and run: outbox relay reshard --shards %d", n, c.Relay.Shards),
		}
	}
	return Finding{check, true, fmt.Sprintf("relay.shards and relay_sharing have the value %d", n), ""}
}

// checkControl holds relay.shards against the partitions of the control topic, which
// differ where a change of the number was begun and not finished. What the broker does
// not tell is the matter of the check of the topic itself.
func checkControl(ctx context.Context, c *app.Config, client *kgo.Client) []Finding {
	control := share.Control{Client: client, Name: app.GroupName(c.Relay.Name)}
	s, err := control.State(ctx)
	if err != nil || s.Partitions == 0 || s.Partitions == c.Relay.Shards {
		return nil
	}
	return []Finding{{
		"partitions of topic " + control.Topic(), false,
		fmt.Sprintf("relay.shards is %d, and it has %s: no instance with this setting carries a shard", c.Relay.Shards, cli.Plural(s.Partitions, "partition")),
		fmt.Sprintf("set relay.shards to %d if relay_sharing has this value too; else stop all instances and run: outbox relay reshard --shards %d", s.Partitions, c.Relay.Shards),
	}}
}
