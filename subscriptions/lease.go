package subscriptions

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
)

// MaxLeases is the maximum number of leases of one list.
const MaxLeases = 1000

// ErrLeaseEnded is returned for a lease that has ended, or never existed.
var ErrLeaseEnded = errors.New("the lease has ended")

// Lease is a message in flight, as operators see it.
type Lease = client.Lease

// LeaseID names a lease. Numbers are unique among the leases of an owner.
type LeaseID struct {
	Topic     string
	Partition int32
	Offset    int64
	Number    uint64
}

// String returns the form that ParseLeaseID reads. It is one segment of a path: topics have no
// colon.
func (l LeaseID) String() string {
	return fmt.Sprintf("%s:%d:%d:%d", l.Topic, l.Partition, l.Offset, l.Number)
}

// ParseLeaseID reads Lease.ID.
func ParseLeaseID(text string) (l LeaseID, err error) {
	parts := strings.Split(text, ":")
	if len(parts) == 4 && parts[0] != "" {
		partition, err1 := strconv.ParseInt(parts[1], 10, 32)
		offset, err2 := strconv.ParseInt(parts[2], 10, 64)
		number, err3 := strconv.ParseUint(parts[3], 10, 64)
		if l = (LeaseID{parts[0], int32(partition), offset, number}); errors.Join(err1, err2, err3) == nil && l.String() == text {
			return l, nil
		}
	}
	return LeaseID{}, fmt.Errorf("id %q: use the id of a lease, such as OrderCreated:0:17:3", text[:min(len(text), 300)])
}

// LeasePage is a page of leases, the one received first at the beginning.
type LeasePage struct {
	Leases []Lease
	// Next is the cursor of the next page, empty for none.
	Next string
	// Unknown contains the instances that have not answered: their leases are missing.
	Unknown []string
}

// NewLeasePage returns the first leases behind a cursor, which is empty or that of a page: up to
// limit, at most MaxLeases. It sorts and overwrites all.
func NewLeasePage(all []Lease, cursor string, limit int) (p LeasePage, err error) {
	if limit < 1 || limit > MaxLeases {
		return p, fmt.Errorf("limit %d: must be 1 to %d", limit, MaxLeases)
	}
	if cursor != "" {
		at, id, _ := strings.Cut(cursor, ":")
		ns, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return p, fmt.Errorf("cursor %q: use the next of the previous page", cursor[:min(len(cursor), 400)])
		}
		behind := Lease{ReceivedAt: time.Unix(0, ns), ID: id}
		all = slices.DeleteFunc(all, func(l Lease) bool { return compareLeases(l, behind) <= 0 })
	}
	slices.SortFunc(all, compareLeases)
	if len(all) > limit {
		all = all[:limit]
		p.Next = leaseCursor(&all[limit-1])
	}
	p.Leases = all
	return p, nil
}

func compareLeases(a, b Lease) int {
	return cmp.Or(a.ReceivedAt.Compare(b.ReceivedAt), cmp.Compare(a.ID, b.ID))
}

func leaseCursor(l *Lease) string { return fmt.Sprintf("%d:%s", l.ReceivedAt.UnixNano(), l.ID) }

// Merge returns the first leases of a page and of the pages of other instances, which began
// behind the same cursor.
func (p LeasePage) Merge(others []LeasePage, limit int) (LeasePage, error) {
	full := p.Next != ""
	for _, o := range others {
		p.Leases, p.Unknown, full = append(p.Leases, o.Leases...), append(p.Unknown, o.Unknown...), full || o.Next != ""
	}
	out, err := NewLeasePage(p.Leases, "", limit)
	if out.Unknown = p.Unknown; err == nil && full && len(out.Leases) > 0 {
		out.Next = leaseCursor(&out.Leases[len(out.Leases)-1])
	}
	return out, err
}

// CheckEndLease returns the error of EndLease for a subscription with push delivery: the
// call that has the lease would continue beside the next one.
func (s *Subscription) CheckEndLease() error {
	if s.Push == nil {
		return nil
	}
	return fmt.Errorf("push: subscription %q delivers its messages to %s; a lease ends with its call", s.Name, s.Push.To)
}
