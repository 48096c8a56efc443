package catalog

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is the ScyllaDB release that the node emulates.
type Version struct{ Major, Minor int }

// ParseVersion parses "5.1" or "2025.4"; anything after the second number is ignored.
func ParseVersion(s string) (Version, error) {
	parts := strings.SplitN(s, ".", 3)
	if len(parts) < 2 {
		return Version{}, fmt.Errorf("version %q is not of the form MAJOR.MINOR", s)
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil || major < 0 || minor < 0 {
		return Version{}, fmt.Errorf("version %q is not of the form MAJOR.MINOR", s)
	}
	return Version{major, minor}, nil
}

// String returns MAJOR.MINOR.
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// AtLeast reports whether v is major.minor or later.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// HasTablets reports whether keyspaces can be created with tablets.
func (v Version) HasTablets() bool { return v.AtLeast(6, 0) }

// RefusesReversedSerialReads reports whether a SELECT at SERIAL or LOCAL_SERIAL against
// the clustering order fails.
func (v Version) RefusesReversedSerialReads() bool { return v.AtLeast(2026, 1) }

// HasLogInBatchlog reports whether the batchlog contains the log rows of a batch, so that
// a replay writes the same ones again. In older releases each replay makes its own.
func (v Version) HasLogInBatchlog() bool { return v.AtLeast(2025, 4) }

// HasPaxosTables reports whether a conditional statement makes a table NAME$paxos beside a
// table of a keyspace with tablets.
func (v Version) HasPaxosTables() bool { return v.AtLeast(2025, 4) }

// SetDefaults changes the options of a new table from the defaults of 5.1 to the defaults
// of the release.
func (v Version) SetDefaults(o *Options) {
	if !v.AtLeast(2025, 4) {
		return
	}
	o.Compaction = map[string]string{"class": "IncrementalCompactionStrategy"}
	o.Compression = map[string]string{"sstable_compression": "LZ4WithDictsCompressor"}
}

// HasTombstoneGC reports whether tables have the extension tombstone_gc, and no chances
// of a read repair.
func (v Version) HasTombstoneGC() bool { return v.AtLeast(2025, 4) }

// EndsFilteringPages reports whether a page of a read with ALLOW FILTERING has no paging
// state once everything is read; in older releases an empty page follows.
func (v Version) EndsFilteringPages() bool { return v.AtLeast(2025, 4) }

// HasGlobalSpec reports whether the columns of results share one table spec.
func (v Version) HasGlobalSpec() bool { return v.AtLeast(2025, 4) }

// HasMetadataID reports whether clients may ask for ids of result metadata.
func (v Version) HasMetadataID() bool { return v.AtLeast(2025, 4) }

// HasCDCOnTablets reports whether a table in a tablets keyspace may have CDC, and the
// option tablets.
func (v Version) HasCDCOnTablets() bool { return v.AtLeast(2025, 4) }
