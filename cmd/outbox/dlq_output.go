package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// deadLetterTable prints dead letters as a list.
var deadLetterTable = cli.Table[admin.ListedDeadLetter]{
	Header: "EVENT\tSTATUS\tERROR\tTYPE\tAGGREGATE\tSEQ\tFIRST FAILED\tNEXT ATTEMPT\tPRIORITY\tATTEMPTS\tTAGS\tTOPIC\tTABLE",
	Wide:   5,
	Row: func(w io.Writer, l admin.ListedDeadLetter) {
		status := string(l.Status)
		switch {
		case l.Unblocked && l.Status.Open():
			status += " (unblocked)"
		case l.ResolvedBy != "":
			status += " (" + l.ResolvedBy + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", l.EventID, status, cli.Clean(l.ErrorClass, 40), cli.Clean(l.EventType, 40),
			cli.Clean(l.AggregateID, 40), l.Sequence, cli.At(w, l.FirstFailedAt), cli.At(w, timeOrZero(l.NextAttempt)), l.Priority, l.Attempts, strings.Join(l.Tags, ","),
			cli.Clean(l.Topic, 60), cli.Clean(l.Table, 60))
	},
	None: "no dead letter matches",
}

// timeOrZero returns the zero time for nil.
func timeOrZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// counts prints the entries of a map, largest number first.
func counts[K ~string, N int | int64](w io.Writer, title string, m map[K]N) {
	keys := make([]K, 0, len(m))
	for k, n := range m {
		if n > 0 {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return
	}
	slices.SortFunc(keys, func(a, b K) int { return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b)) })
	fmt.Fprintf(w, "%s\n", title)
	for _, k := range keys {
		name := cli.Clean(string(k), 60)
		if name == "" {
			name = "(none)"
		}
		fmt.Fprintf(w, "  %8d  %s\n", m[k], name)
	}
}

// causes prints error classes with the events that wait behind them.
func causes(w io.Writer, title string, all []admin.CauseBody) {
	if len(all) > 0 {
		fmt.Fprintf(w, "%s\n", title)
	}
	for _, c := range all {
		blocks := ""
		if c.Blocks > 0 {
			blocks = fmt.Sprintf(" (blocks %d)", c.Blocks)
		}
		fmt.Fprintf(w, "  %8d  %s%s\n", c.Count, cmp.Or(cli.Clean(c.ErrorClass, 60), "(none)"), blocks)
	}
}
