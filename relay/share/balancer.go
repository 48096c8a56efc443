package share

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// balancer is cooperative-sticky balancing under a name that has the number of
// shards in it. A broker lets a member into a group only if they know a protocol in
// common, so instances that cut the work into different numbers of shards are never
// in the group at the same time.
type balancer struct {
	kgo.GroupBalancer
	shards int
}

// ProtocolName is the name that members have to agree on.
func (b balancer) ProtocolName() string {
	return fmt.Sprintf("%s/%d", b.GroupBalancer.ProtocolName(), b.shards)
}
