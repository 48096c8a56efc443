package schema

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Defaults of Options.
const (
	DefaultKeyspace       = "outbox"
	DefaultReplication    = "1"
	DefaultCDCTTL         = 3 * 24 * time.Hour
	DefaultRowTTL         = 7 * 24 * time.Hour
	DefaultIdempotencyTTL = 7 * 24 * time.Hour
	DefaultLockTTL        = 30 * time.Second
	DefaultLockWait       = 5 * time.Minute
)

// TabletsMode selects how a new keyspace distributes its data.
type TabletsMode string

// The tablets modes.
const (
	// TabletsAuto uses the default of the server if tables with CDC support
	// tablets, otherwise vnodes.
	TabletsAuto TabletsMode = "auto"
	// TabletsOff selects vnodes.
	TabletsOff TabletsMode = "vnodes"
	// TabletsOn selects tablets, which support tables with CDC since ScyllaDB
	// 2025.4.
	TabletsOn TabletsMode = "tablets"
)

// Options are the parameters of the migrations and of their application. The
// zero value is usable. Except for LockTTL, LockWait, Owner and Logger, they
// apply only when an object is created: an existing keyspace or table is
// unchanged.
type Options struct {
	// Keyspace is created if it does not exist. Default "outbox"; lower-case
	// letters, digits and _, at most 48.
	Keyspace string
	// Components are added to the keyspace, with all that they require. Default the
	// components that the keyspace has, and all but Orders for a new keyspace.
	Components []Component
	// Replication is a replication factor for every data centre, such as "3", or
	// one for each, such as "datacenter1:3,datacenter2:2". Default "1".
	Replication string
	// Tablets is auto, vnodes or tablets. Default auto.
	Tablets TabletsMode
	// CDCTTL is the retention of the CDC log of outbox_messages: the longest
	// outage of the relay without a backfill. Default 3 days; at least one minute.
	CDCTTL time.Duration
	// RowTTL is the retention of outbox_messages. Default 7 days; at least CDCTTL, since a
	// backfill reads the rows, and at least IdempotencyTTL where a component has keys: a retry
	// finds the row of the first request.
	RowTTL time.Duration
	// IdempotencyTTL is the retention of Idempotency-Keys. Default 7 days; at
	// least one minute.
	IdempotencyTTL time.Duration

	// LockTTL is after how long the lock of a dead instance opens. Default 30 s;
	// at least 3 s. A living one renews it three times within it.
	LockTTL time.Duration
	// LockWait bounds the wait for the lock of another instance. Default 5 min.
	LockWait time.Duration
	// Owner names this instance in the lock and in schema_migrations. Default
	// host name and process id.
	Owner string
	// Logger receives one line per applied migration. Default discards.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Keyspace = cmp.Or(o.Keyspace, DefaultKeyspace)
	if all, err := withRequired(o.Components); err == nil { // validate reports the error
		o.Components = all
	}
	o.Replication = cmp.Or(strings.TrimSpace(o.Replication), DefaultReplication)
	o.Tablets = cmp.Or(o.Tablets, TabletsAuto)
	o.CDCTTL = cmp.Or(o.CDCTTL, DefaultCDCTTL)
	o.RowTTL = cmp.Or(o.RowTTL, DefaultRowTTL)
	o.IdempotencyTTL = cmp.Or(o.IdempotencyTTL, DefaultIdempotencyTTL)
	o.LockTTL = cmp.Or(o.LockTTL, DefaultLockTTL)
	o.LockWait = cmp.Or(o.LockWait, DefaultLockWait)
	o.Owner = cmp.Or(o.Owner, self.Process())
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) validate() error {
	var errs []error
	if _, err := outbox.NewTable(o.Keyspace, ""); err != nil {
		errs = append(errs, fmt.Errorf("keyspace %q: use lower-case letters, digits and _, at most 48, the first a letter", o.Keyspace))
	}
	if _, err := replicationClause(o.Replication); err != nil {
		errs = append(errs, err)
	}
	if _, err := withRequired(o.Components); err != nil {
		errs = append(errs, err)
	}
	switch o.Tablets {
	case TabletsAuto, TabletsOff, TabletsOn:
	default:
		errs = append(errs, fmt.Errorf("tablets mode %q: use auto, vnodes or tablets", o.Tablets))
	}
	for _, d := range []struct {
		name     string
		value    time.Duration
		min, max time.Duration
	}{
		{"CDC TTL", o.CDCTTL, time.Minute, maxTTL},
		{"row TTL", o.RowTTL, time.Minute, maxTTL},
		{"idempotency TTL", o.IdempotencyTTL, time.Minute, maxTTL},
		{"lock TTL", o.LockTTL, 3 * time.Second, time.Hour},
		{"lock wait", o.LockWait, 0, maxTTL},
	} {
		if d.value < d.min || d.value > d.max {
			errs = append(errs, fmt.Errorf("%s %s: must be from %s to %s", d.name, d.value, d.min, d.max))
		}
	}
	if o.RowTTL < o.CDCTTL {
		errs = append(errs, fmt.Errorf("row TTL %s: must not be below the CDC TTL of %s, or a backfill finds nothing", o.RowTTL, o.CDCTTL))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("schema options: %w", err)
	}
	return nil
}

// checkKeys returns an error if the rows of a keyspace with these components expire before the
// Idempotency-Keys that refer to them.
func (o Options) checkKeys(components []Component) error {
	if o.RowTTL < o.IdempotencyTTL && (slices.Contains(components, Schedule) || slices.Contains(components, Orders)) {
		return fmt.Errorf("schema options: row TTL %s: must not be below the %s of Idempotency-Keys, or a retry stores its message again", o.RowTTL, o.IdempotencyTTL)
	}
	return nil
}

// maxTTL is the maximum of CQL: 20 years of 365 days.
const maxTTL = 630_720_000 * time.Second

// datacentre is the pattern of data centre names in Replication.
var datacentre = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// replicationClause turns "3" or "dc1:3,dc2:2" into the map of CREATE KEYSPACE.
func replicationClause(s string) (string, error) {
	var b strings.Builder
	b.WriteString("{'class': 'NetworkTopologyStrategy'")
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, ",") {
		dc, factor, named := strings.Cut(strings.TrimSpace(part), ":")
		if !named {
			dc, factor = "replication_factor", dc
		}
		n, err := strconv.Atoi(strings.TrimSpace(factor))
		if err != nil || n < 1 || n > 100 || seen[dc] || !datacentre.MatchString(dc) || !named && strings.Contains(s, ",") {
			return "", fmt.Errorf(`replication %q: use a factor such as 3, or one per data centre such as datacenter1:3,datacenter2:2`, s)
		}
		seen[dc] = true
		fmt.Fprintf(&b, ", '%s': %d", dc, n)
	}
	b.WriteString("}")
	return b.String(), nil
}
