package ddl

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// setOptions sets the properties of a WITH clause on a new or cloned table. Omitted
// properties keep their value. Unknown names are refused before any value is checked,
// as in ScyllaDB.
func (w *change) setOptions(t *catalog.Table, with []cql.Property) error {
	for _, prop := range with {
		if _, ok := optionSetters[prop.Name]; !ok || prop.Name == "tablets" && !w.c.o.Version.HasCDCOnTablets() {
			return errUnknownProperty(prop.Name)
		}
	}
	for _, prop := range with {
		if err := optionSetters[prop.Name](t, prop); err != nil {
			return err
		}
	}
	if o := &t.Options; o.MaxIndexInterval < o.MinIndexInterval {
		return cqlerr.New(cqlerr.Config, "max_index_interval must be greater than min_index_interval")
	}
	return nil
}

type optionSetter func(*catalog.Table, cql.Property) error

var optionSetters = map[string]optionSetter{
	"comment": func(t *catalog.Table, p cql.Property) error {
		s, err := plain(p)
		t.Options.Comment = s
		return err
	},
	"speculative_retry": func(t *catalog.Table, p cql.Property) error {
		s, err := plain(p)
		t.Options.SpeculativeRetry = s
		return err
	},
	"default_time_to_live":        integer(func(o *catalog.Options) *int32 { return &o.DefaultTTL }, 0, 0),
	"gc_grace_seconds":            integer(func(o *catalog.Options) *int32 { return &o.GCGraceSeconds }, math.MinInt32, 864000),
	"paxos_grace_seconds":         integer(func(o *catalog.Options) *int32 { return &o.PaxosGraceSeconds }, 0, 864000),
	"memtable_flush_period_in_ms": integer(func(o *catalog.Options) *int32 { return &o.MemtableFlushPeriod }, 0, 0),
	"min_index_interval":          integer(func(o *catalog.Options) *int32 { return &o.MinIndexInterval }, 1, 128),
	"max_index_interval":          integer(func(o *catalog.Options) *int32 { return &o.MaxIndexInterval }, 1, 2048),
	"bloom_filter_fp_chance":      fraction(func(o *catalog.Options) *float64 { return &o.BloomFilterFPChance }),
	"crc_check_chance":            fraction(func(o *catalog.Options) *float64 { return &o.CRCCheckChance }),
	"dclocal_read_repair_chance":  fraction(func(o *catalog.Options) *float64 { return &o.DCLocalReadRepair }),
	"read_repair_chance":          fraction(func(o *catalog.Options) *float64 { return &o.ReadRepair }),
	"compaction":                  setCompaction,
	"compression":                 setCompression,
	"caching":                     setCaching,
	"tablets":                     setTablets,
	"cdc": func(t *catalog.Table, p cql.Property) error {
		c, _, err := readCDC(p)
		if err == nil && len(p.Map) > 0 {
			t.CDC = c
		}
		return err
	},
}

func plain(p cql.Property) (string, error) {
	if p.IsMap {
		return "", cqlerr.New(cqlerr.Syntax, "Invalid value for property '%s'. It should be a string", p.Name)
	}
	return p.Value.Text, nil
}

func mapping(p cql.Property) (map[string]string, error) {
	if !p.IsMap {
		return nil, cqlerr.New(cqlerr.Syntax, "Invalid value for property '%s'. It should be a map.", p.Name)
	}
	return entries(p), nil
}

func integer(field func(*catalog.Options) *int32, least, def int32) optionSetter {
	return func(t *catalog.Table, p cql.Property) error {
		s, err := plain(p)
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			return cqlerr.New(cqlerr.Syntax, "Invalid integer value %s for '%s'", s, p.Name)
		}
		if int32(n) < least {
			return cqlerr.New(cqlerr.Config, "%s cannot be smaller than %d, (default %d)", p.Name, least, def)
		}
		*field(&t.Options) = int32(n)
		return nil
	}
}

func fraction(field func(*catalog.Options) *float64) optionSetter {
	return func(t *catalog.Table, p cql.Property) error {
		s, err := plain(p)
		if err != nil {
			return err
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return cqlerr.New(cqlerr.Syntax, "Invalid double value %s for '%s'", s, p.Name)
		}
		if !(f >= 0 && f <= 1) {
			return cqlerr.New(cqlerr.Config, "%s must be between 0 and 1.0 (got %s)", p.Name, s)
		}
		*field(&t.Options) = f
		return nil
	}
}

var compactionStrategies = []string{
	"SizeTieredCompactionStrategy", "LeveledCompactionStrategy", "DateTieredCompactionStrategy",
	"TimeWindowCompactionStrategy", "IncrementalCompactionStrategy", "NullCompactionStrategy",
}

func setCompaction(t *catalog.Table, p cql.Property) error {
	m, err := mapping(p)
	if err != nil {
		return err
	}
	class, ok := m["class"]
	if !ok {
		return cqlerr.New(cqlerr.Config, "Missing sub-option 'class' for the 'compaction' option.")
	}
	m["class"] = strings.TrimPrefix(class, "org.apache.cassandra.db.compaction.")
	if !slices.Contains(compactionStrategies, m["class"]) {
		return cqlerr.New(cqlerr.Config, "Unable to find compaction strategy class '%s'", class)
	}
	t.Options.Compaction = m
	return nil
}

const compressorPackage = "org.apache.cassandra.io.compress."

func setCompression(t *catalog.Table, p cql.Property) error {
	m, err := mapping(p)
	if err != nil {
		return err
	}
	class, ok := m["sstable_compression"]
	if !ok {
		class = m["class"]
		delete(m, "class")
	}
	if class == "" {
		// No compression, with or without options.
		t.Options.Compression = map[string]string{}
		return nil
	}
	class = strings.TrimPrefix(class, compressorPackage)
	switch class {
	case "LZ4Compressor", "SnappyCompressor", "DeflateCompressor", "ZstdCompressor":
	default:
		return cqlerr.New(cqlerr.Config, "Unsupported compression class '%s'.", class)
	}
	m["sstable_compression"] = compressorPackage + class
	t.Options.Compression = m
	return nil
}

func setCaching(t *catalog.Table, p cql.Property) error {
	m, err := mapping(p)
	if err != nil {
		return err
	}
	out := map[string]string{"keys": "ALL", "rows_per_partition": "ALL"}
	for k, v := range m {
		switch k {
		case "keys", "rows_per_partition", "enabled":
			out[k] = v
		default:
			return cqlerr.New(cqlerr.Config, "Invalid caching option: %s", k)
		}
	}
	t.Options.Caching = out
	return nil
}

// tabletHints are the keys of the option tablets.
var tabletHints = []string{"min_tablet_count", "min_per_shard_tablet_count", "expected_data_size_in_gb"}

// setTablets takes any text for a number, as ScyllaDB does, which then counts as none.
func setTablets(t *catalog.Table, p cql.Property) error {
	m, err := mapping(p)
	if err != nil {
		return err
	}
	for k, v := range m {
		if !slices.Contains(tabletHints, k) {
			return cqlerr.New(cqlerr.Syntax, "Unknown tablet hint '%s'", k)
		}
		if n, err := strconv.ParseFloat(v, 64); err == nil && n < 0 {
			return cqlerr.New(cqlerr.Config, "Invalid value '%s' for %s", v, k)
		}
	}
	t.Options.Tablets = m
	if len(m) == 0 {
		t.Options.Tablets = nil
	}
	return nil
}

// checkTablets refuses the option tablets in a keyspace without tablets.
func checkTablets(ks *catalog.Keyspace, with []cql.Property) error {
	if !ks.Tablets && slices.ContainsFunc(with, func(p cql.Property) bool { return p.Name == "tablets" }) {
		return cqlerr.New(cqlerr.Config, "tablet options cannot be used when tablets are disabled for the keyspace")
	}
	return nil
}
