package messages

import (
	"slices"

	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// locations returns the distinct locations of the problem's errors, sorted.
func locations(r world.Response) []string {
	all := r.Locations()
	slices.Sort(all)
	return slices.Compact(all)
}
