package releases

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// release is the data that the programs of a version wrote, in a file of testdata.
type release struct {
	Version  string
	Recorded time.Time
	// Generation is the CDC generation to which checkpoints refer.
	Generation generation
	// Schema are the statements that create the keyspace and its tables.
	Schema []string
	// Tables are the rows by table, as JSON without nulls (see cell).
	Tables map[string][]row
	// Topics have their partitions with all records.
	Topics map[string][][]record
	// TopicIDs are the ids of the topics, which rows and committed offsets contain. A loaded
	// topic has another id: load replaces them.
	TopicIDs map[string]gocql.UUID
	// Groups are the committed offsets of consumer groups.
	Groups map[string][]offset
	// Archive are the objects of the archive of dead letters.
	Archive map[string][]byte
	// Facts are ids that the recording chose.
	Facts map[string][]string
	// Responses of the admin API, by path.
	Responses map[string]json.RawMessage
}

type generation struct {
	HostID uuid.UUID
	Start  time.Time
	// Streams are the ids of the streams, in hex, by the last token of their range.
	Streams map[int64]string
}

type row struct {
	// Written is the write timestamp of a row of an outbox table, which is the time of its
	// CDC row. 0 for others.
	Written int64 `json:",omitempty"`
	Cells   map[string]json.RawMessage
}

type record struct {
	Key, Value text
	Headers    []header
	At         int64 // milliseconds
}

type header struct {
	Key   string
	Value text
}

// text is a value that is shown as text; values in the recording are UTF-8.
type text string

type offset struct {
	Topic     string
	Partition int32
	At        int64
	Metadata  string
}

// transient are the tables whose rows end with the process that wrote them, with an answer,
// or with their TTL of minutes.
var transient = []string{"schema_locks", "schedule_leases", "relay_instances", "subscription_instances", "dead_letter_holds", "relay_repairs"}

// record returns the content of the engines.
func (w *world) record(version string) *release {
	r := &release{
		Version: version, Recorded: time.Now().UTC(), Tables: map[string][]row{}, Topics: map[string][][]record{}, TopicIDs: map[string]gocql.UUID{}, Groups: map[string][]offset{},
		Archive: map[string][]byte{}, Facts: map[string][]string{}, Responses: map[string]json.RawMessage{},
	}
	w.recordGeneration(&r.Generation)
	var text bytes.Buffer
	w.must(schema.Print(&text, schema.Options{Components: schema.Components()}))
	for _, stmt := range append(strings.Split(withoutComments(text.String()), ";"), own()...) {
		if stmt = strings.Join(strings.Fields(withoutComments(stmt)), " "); stmt != "" {
			r.Schema = append(r.Schema, stmt)
		}
	}
	for _, table := range w.recordTables(r) {
		if len(r.Tables[table]) == 0 && !slices.Contains(transient, table) {
			w.t.Errorf("table %s has no rows: add them to the story", table)
		}
	}
	w.recordTopics(r)
	w.must(filepath.WalkDir(w.archiveDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(w.archiveDir, path) // it is below
		r.Archive[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	}))
	return r
}

// withoutComments removes comments; no statement contains two hyphens otherwise.
func withoutComments(cql string) string { return regexp.MustCompile(`--.*`).ReplaceAllString(cql, "") }

func (w *world) recordGeneration(g *generation) {
	g.Streams = map[int64]string{}
	var id gocql.UUID
	w.must(w.session.Query("SELECT host_id FROM system.local").Scan(&id))
	g.HostID = uuid.UUID(id)
	iter := w.session.Query("SELECT time, range_end, streams FROM system_distributed.cdc_streams_descriptions_v2").Consistency(gocql.One).Iter()
	var end int64
	for streams := [][]byte{}; iter.Scan(&g.Start, &end, &streams); {
		if len(streams) != 1 {
			w.t.Fatalf("%d streams end at %d, want one: the node has one shard", len(streams), end)
		}
		g.Streams[end] = hex.EncodeToString(streams[0])
	}
	w.must(iter.Close())
}

// identity is that of a node with the streams of the generation.
func (g *generation) identity() (*topology.Identity, error) {
	id := &topology.Identity{HostID: g.HostID, Start: g.Start, Tokens: slices.Sorted(maps.Keys(g.Streams))}
	for _, token := range id.Tokens {
		b, err := hex.DecodeString(g.Streams[token])
		if err != nil || len(b) != len(topology.StreamID{}) {
			return nil, fmt.Errorf("stream %q: %w", g.Streams[token], err)
		}
		id.Streams = append(id.Streams, []topology.StreamID{topology.StreamID(b)})
	}
	return id, nil
}

// recordTables records the rows and returns the names of all tables.
func (w *world) recordTables(r *release) []string {
	columns, outboxes := map[string][]string{}, map[string]bool{}
	iter := w.session.Query("SELECT table_name, column_name FROM system_schema.columns WHERE keyspace_name = ?", keyspace).Iter()
	for table, column := "", ""; iter.Scan(&table, &column); {
		if of, is := strings.CutSuffix(table, "_scylla_cdc_log"); is {
			outboxes[of] = true
			continue
		}
		if strings.HasSuffix(table, "$paxos") {
			continue // ScyllaDB's own; clients must not read it
		}
		columns[table] = append(columns[table], column)
	}
	w.must(iter.Close())
	for table, names := range columns {
		if slices.Contains(transient, table) {
			continue
		}
		if outboxes[table] {
			names = append(names, "writetime(payload)")
		}
		iter := w.session.Query("SELECT " + strings.Join(names, ", ") + " FROM " + keyspace + "." + table).Iter()
		cells, dest := make([]cell, len(names)), make([]any, len(names))
		for i := range cells {
			dest[i] = &cells[i]
		}
		for iter.Scan(dest...) {
			one := row{Cells: map[string]json.RawMessage{}}
			for i, c := range cells {
				if c.RawMessage != nil {
					one.Cells[names[i]] = c.RawMessage
				}
			}
			if at, ok := one.Cells["writetime(payload)"]; ok {
				w.must(json.Unmarshal(at, &one.Written))
				delete(one.Cells, "writetime(payload)")
			}
			r.Tables[table] = append(r.Tables[table], one)
		}
		w.must(iter.Close())
	}
	return slices.Sorted(maps.Keys(columns))
}

func (w *world) recordTopics(r *release) {
	ends := must1[kadm.ListedOffsets](w)(w.kafka.ListEndOffsets(w.t.Context()))
	ends.Each(func(o kadm.ListedOffset) {
		for len(r.Topics[o.Topic]) <= int(o.Partition) {
			r.Topics[o.Topic] = append(r.Topics[o.Topic], []record{})
		}
	})
	for _, x := range w.consume() {
		out := record{Key: text(x.Key), Value: text(x.Value), At: x.Timestamp.UnixMilli()}
		for _, h := range x.Headers {
			out.Headers = append(out.Headers, header{h.Key, text(h.Value)})
		}
		r.Topics[x.Topic][x.Partition] = append(r.Topics[x.Topic][x.Partition], out)
	}
	for topic, d := range must1[kadm.TopicDetails](w)(w.kafka.ListTopics(w.t.Context())) {
		r.TopicIDs[topic] = gocql.UUID(d.ID)
	}
	groups := must1[kadm.ListedGroups](w)(w.kafka.ListGroups(w.t.Context()))
	for _, group := range groups.Groups() {
		for _, o := range must1[kadm.OffsetResponses](w)(w.kafka.FetchOffsets(w.t.Context(), group)).Sorted() {
			r.Groups[group] = append(r.Groups[group], offset{o.Topic, o.Partition, o.At, o.Metadata})
		}
	}
}

// consume returns all records of all topics, in order within each partition.
func (w *world) consume() (out []*kgo.Record) {
	ends := must1[kadm.ListedOffsets](w)(w.kafka.ListEndOffsets(w.t.Context()))
	from, left := map[string]map[int32]kgo.Offset{}, int64(0)
	ends.Each(func(o kadm.ListedOffset) {
		if from[o.Topic] == nil {
			from[o.Topic] = map[int32]kgo.Offset{}
		}
		from[o.Topic][o.Partition] = kgo.NewOffset().AtStart()
		left += o.Offset
	})
	c := must1[*kgo.Client](w)(kgo.NewClient(w.brokers(kgo.ConsumePartitions(from))...))
	defer c.Close()
	for left > 0 {
		fetches := c.PollFetches(w.t.Context())
		w.must(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { out = append(out, r); left-- })
	}
	return out
}

// load writes the content of a release into empty engines.
func (w *world) load(r *release) {
	s := w.connect("")
	defer sessions.Close(s)
	exec := func(stmt string, args ...any) {
		w.t.Helper()
		if err := s.Query(stmt, args...).Exec(); err != nil {
			w.t.Fatalf("%s: %v", stmt, err)
		}
	}
	for _, stmt := range r.Schema {
		exec(stmt)
	}
	now := make(map[gocql.UUID]gocql.UUID)
	for topic, partitions := range r.Topics {
		created := must1[kadm.CreateTopicResponse](w)(w.kafka.CreateTopic(w.t.Context(), int32(len(partitions)), 1, nil, topic))
		now[r.TopicIDs[topic]] = gocql.UUID(created.ID)
	}
	for table, rows := range r.Tables {
		// The CDC rows of an aggregate are in the order of their writes.
		slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.Written, b.Written) })
		for _, x := range rows {
			at := cmp.Or(x.Written, r.Recorded.UnixMicro())
			var columns, values []string
			var args []any
			for _, column := range slices.Sorted(maps.Keys(x.Cells)) {
				columns, values, args = append(columns, column), append(values, "?"), append(args, cell{json.RawMessage(withTopicIDs(string(x.Cells[column]), now))})
			}
			exec(fmt.Sprintf("INSERT INTO %s.%s (%s) VALUES (%s) USING TIMESTAMP %d", keyspace, table, strings.Join(columns, ", "), strings.Join(values, ", "), at), args...)
		}
	}
	for topic, partitions := range r.Topics {
		for p, records := range partitions {
			for _, x := range records {
				out := &kgo.Record{Topic: topic, Partition: int32(p), Key: []byte(x.Key), Value: []byte(x.Value), Timestamp: time.UnixMilli(x.At)}
				for _, h := range x.Headers {
					out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: []byte(h.Value)})
				}
				w.must(w.client.ProduceSync(w.t.Context(), out).FirstErr())
			}
		}
	}
	for group, offsets := range r.Groups {
		all := kadm.Offsets{}
		for _, o := range offsets {
			all.Add(kadm.Offset{Topic: o.Topic, Partition: o.Partition, At: o.At, LeaderEpoch: -1, Metadata: metadataWithTopicIDs(o.Metadata, now)})
		}
		w.must(w.kafka.CommitAllOffsets(w.t.Context(), group, all))
	}
	for name, b := range r.Archive {
		path := filepath.Join(w.archiveDir, filepath.FromSlash(name))
		w.must(os.MkdirAll(filepath.Dir(path), 0o755))
		w.must(os.WriteFile(path, b, 0o600))
	}
}

// withTopicIDs replaces the ids of recorded topics by the ids of the loaded ones.
func withTopicIDs(text string, now map[gocql.UUID]gocql.UUID) string {
	for was, is := range now {
		text = strings.ReplaceAll(text, was.String(), is.String())
	}
	return text
}

// metadataWithTopicIDs replaces the id in the metadata of the position of a subscription.
func metadataWithTopicIDs(metadata string, now map[gocql.UUID]gocql.UUID) string {
	raw, err := base64.RawURLEncoding.DecodeString(metadata)
	if err != nil {
		return metadata
	}
	for was, is := range now {
		raw = bytes.Replace(raw, was[:], is[:], 1)
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// lines of the file of a release are as deep as this in its members, and otherwise at 1: a
// line for each row, record and response.
var lines = map[string]int{"Generation": 2, "Tables": 2, "Topics": 3, "Groups": 2}

// write writes the release to a file.
func (r *release) write(path string) error {
	var compact, b bytes.Buffer
	out := json.NewEncoder(&compact)
	out.SetEscapeHTML(false)
	if err := out.Encode(r); err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(compact.Bytes(), &members); err != nil {
		return err
	}
	separator := "{\n"
	for _, name := range slices.Sorted(maps.Keys(members)) {
		fmt.Fprintf(&b, "%s%q: ", separator, name)
		writeLines(&b, members[name], cmp.Or(lines[name], 1), "\n ")
		separator = ",\n"
	}
	b.WriteString("\n}\n")
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// writeLines writes a value, with a line for each of its parts down to a depth.
func writeLines(b *bytes.Buffer, v json.RawMessage, depth int, indent string) {
	separator := ""
	part := func(key string, v json.RawMessage) {
		b.WriteString(separator + indent + key)
		writeLines(b, v, depth-1, indent+" ")
		separator = ","
	}
	var object map[string]json.RawMessage
	var list []json.RawMessage
	switch {
	case depth > 0 && json.Unmarshal(v, &object) == nil && len(object) > 0:
		b.WriteByte('{')
		for _, k := range slices.Sorted(maps.Keys(object)) {
			part(fmt.Sprintf("%q: ", k), object[k])
		}
		b.WriteString(indent[:len(indent)-1] + "}")
	case depth > 0 && json.Unmarshal(v, &list) == nil && len(list) > 0:
		b.WriteByte('[')
		for _, v := range list {
			part("", v)
		}
		b.WriteString(indent[:len(indent)-1] + "]")
	default:
		b.Write(v)
	}
}

// readRelease returns the release in a file.
func readRelease(path string) (*release, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(release)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return r, nil
}

// contains returns the places at which got lacks what want contains. Objects of got may
// have further members.
func contains(at string, want, got any) (missing []string) {
	switch want := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s is %v, want an object", at, got)}
		}
		for _, k := range slices.Sorted(maps.Keys(want)) {
			if v, there := g[k]; there {
				missing = append(missing, contains(at+"."+k, want[k], v)...)
			} else {
				missing = append(missing, fmt.Sprintf("%s.%s is missing, want %v", at, k, want[k]))
			}
		}
		return missing
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(want) {
			return []string{fmt.Sprintf("%s is %v, want %v", at, got, want)}
		}
		for i := range want {
			missing = append(missing, contains(fmt.Sprintf("%s[%d]", at, i), want[i], g[i])...)
		}
		return missing
	}
	if want != got {
		return []string{fmt.Sprintf("%s is %v, want %v", at, got, want)}
	}
	return nil
}
