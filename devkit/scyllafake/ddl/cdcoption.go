package ddl

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// defaultCDCTTL is the cdc ttl of a map without one, in seconds.
const defaultCDCTTL = 86400

// readCDC parses the cdc property. named reports whether it contains "enabled".
func readCDC(prop cql.Property) (c *catalog.CDC, named bool, err error) {
	if !prop.IsMap {
		return nil, false, cqlerr.New(cqlerr.Server, "Cannot create cdc info from string")
	}
	c = &catalog.CDC{TTLSeconds: defaultCDCTTL}
	for _, e := range prop.Map {
		key, value := strings.ToLower(e.Key.Text), strings.ToLower(e.Value.Text)
		bad := cqlerr.New(cqlerr.Config, "Invalid value for CDC option \"%s\": %s", key, value)
		on, isBool := boolean(value)
		switch key {
		case "enabled":
			if !isBool {
				return nil, false, bad
			}
			c.Enabled, named = on, true
		case "preimage", "postimage":
			switch {
			case on, key == "preimage" && value == "full":
				return nil, false, cqlerr.Unsupported("the CDC option " + key)
			case !isBool:
				return nil, false, bad
			}
		case "delta":
			switch value {
			case "keys":
				c.DeltaKeys = true
			case "full":
				c.DeltaKeys = false
			default:
				return nil, false, bad
			}
		case "ttl":
			n, err := strconv.ParseInt(value, 10, 64)
			switch {
			case err != nil:
				return nil, false, bad
			case n < 0:
				return nil, false, cqlerr.New(cqlerr.Config, "Invalid CDC option: ttl must be >= 0")
			case n > math.MaxInt32:
				return nil, false, cqlerr.New(cqlerr.Config, "Invalid CDC option: ttl too large")
			}
			c.TTLSeconds = n
		default:
			return nil, false, cqlerr.New(cqlerr.Config, "Invalid CDC option: %s", key)
		}
	}
	return c, named, nil
}

func boolean(s string) (value, ok bool) {
	switch s {
	case "true", "1":
		return true, true
	case "false", "0":
		return false, true
	}
	return false, false
}

// cdcMap returns a table's cdc options as ScyllaDB lists them.
func cdcMap(c *catalog.CDC) [][2]string {
	delta := "full"
	if c.DeltaKeys {
		delta = "keys"
	}
	return [][2]string{
		{"delta", delta},
		{"enabled", strconv.FormatBool(c.Enabled)},
		{"postimage", "false"},
		{"preimage", "false"},
		{"ttl", strconv.FormatInt(c.TTLSeconds, 10)},
	}
}

// extension returns options in the form of the extensions in system_schema.tables: a
// count, then keys and values, each with its length, all little endian (ScyllaDB
// cdc/cdc_extension.hh).
func extension(m [][2]string) []byte {
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(m)))
	for _, kv := range m {
		for _, s := range kv {
			out = binary.LittleEndian.AppendUint32(out, uint32(len(s)))
			out = append(out, s...)
		}
	}
	return out
}
