package share

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// balancer is cooperative-sticky balancing under a name that contains the number of
// shards and the source that is divided into them. A broker accepts a member only if the group
// has a protocol in common, so instances with different numbers of shards, or of different
// databases, are never in the group at the same time.
type balancer struct {
	kgo.GroupBalancer
	shards  int
	divided string
}

// ProtocolName returns the name that all members of the group must share.
func (b balancer) ProtocolName() string {
	return fmt.Sprintf("%s/%d/%s", b.GroupBalancer.ProtocolName(), b.shards, b.divided)
}
