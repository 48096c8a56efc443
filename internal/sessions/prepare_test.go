package sessions

import (
	"net"
	"slices"
	"strconv"
	"testing"

	"github.com/gocql/gocql"
)

// However the other policy rotates its hosts, requests go to one node, and to the others in the same order: local
// ones first.
func TestOneNode(t *testing.T) {
	t.Parallel()
	var all []*gocql.HostInfo
	for i := range 4 {
		h := gocql.HostInfoBuilder{
			ConnectAddress: net.IPv4(10, 0, 0, byte(i)), Port: 9042, HostId: "01a1e0a2-0000-4000-8000-00000000000" + strconv.Itoa(i), DataCenter: []string{"far", "near"}[i%2],
		}.Build()
		all = append(all, &h)
	}
	rotating := nearest{&hosts{all: all}}
	for range all {
		var got []string
		next := OneNode(rotating).Pick(nil)
		for h := next(); h != nil; h = next() {
			got = append(got, h.Info().ConnectAddress().String())
		}
		if want := []string{"10.0.0.1", "10.0.0.3", "10.0.0.0", "10.0.0.2"}; !slices.Equal(got, want) {
			t.Errorf("requests go to %v, want %v", got, want)
		}
		rotating.all = append(rotating.all[1:], rotating.all[0])
	}
}

// nearest has the hosts of the data center near as local ones.
type nearest struct{ *hosts }

// IsLocal implements gocql.HostSelectionPolicy.
func (nearest) IsLocal(h *gocql.HostInfo) bool { return h.DataCenter() == "near" }
