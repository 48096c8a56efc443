package dlq

import "strings"

// entryColumns are the columns of a dead letter that cost little to read.
var entryColumns = []string{
	"event_id", "version", "status", "table_name", "aggregate_id", "aggregate_type", "event_type", "seq", "created_at", "deliver_at",
	"written_at", "topic", "error_class", "attempts", "replays", "first_failed_at", "last_failed_at", "strategy", "next_attempt",
	"claimed_by", "claimed_until", "unblocked", "rule", "waiting", "failure_key", "failure_repeats",
	"purged_at", "archive", "resolved_at", "job_id", "edited_id", "priority", "tags", "outcome",
}

// moreColumns are the others, but for history.
var moreColumns = []string{
	"payload", "content_type", "headers", "error_code", "error_text", "error_chain", "metadata", "raw",
	"outcome_topic", "outcome_partition", "outcome_offset", "outcome_note",
}

// insertColumns are the columns of a new dead letter.
var insertColumns = []string{
	"event_id", "version", "status", "table_name", "aggregate_id", "aggregate_type", "event_type", "seq", "created_at", "deliver_at",
	"written_at", "topic", "error_class", "attempts", "replays", "first_failed_at", "last_failed_at", "strategy", "next_attempt",
	"payload", "content_type", "headers", "error_code", "error_text", "error_chain", "metadata", "raw", "rule", "waiting",
	"failure_key", "failure_repeats", "priority", "tags", "unblocked", "history",
}

// statements are the store's CQL that does not depend on the changed columns.
type statements struct {
	table                                          string
	insert, entry, entries, whole, wholes, history string
	purged, errors                                 string
	chains, chain                                  string
	requestAdd, requestDrop, requests, requested   string
	holdAdd, holdDrop, holds                       string
}

func newStatements(keyspace string) statements {
	deadLetters, chains := keyspace+".dead_letter_queue", keyspace+".dead_letter_chains"
	requests, holds := keyspace+".dead_letter_requests", keyspace+".dead_letter_holds"
	whole := "SELECT " + strings.Join(entryColumns, ", ") + ", " + strings.Join(moreColumns, ", ") + " FROM " + deadLetters
	entry := "SELECT " + strings.Join(entryColumns, ", ") + " FROM " + deadLetters
	return statements{
		table: deadLetters,
		insert: "INSERT INTO " + deadLetters + " (" + strings.Join(insertColumns, ", ") + ") VALUES (" +
			strings.TrimSuffix(strings.Repeat("?, ", len(insertColumns)), ", ") + ") IF NOT EXISTS",
		entry:   entry + " WHERE event_id = ?",
		entries: entry + " WHERE event_id IN ?",
		whole:   whole + " WHERE event_id = ?",
		wholes:  whole + " WHERE event_id IN ?",
		history: "SELECT history FROM " + deadLetters + " WHERE event_id = ?",
		errors:  "SELECT event_id, error_code, error_text FROM " + deadLetters + " WHERE event_id IN ?",
		purged:  "SELECT WRITETIME(purged_at) FROM " + deadLetters + " WHERE event_id = ?",

		chains: "SELECT aggregate_id, seq, written_at, event_id FROM " + chains + " WHERE table_name = ? AND part = ?",
		chain:  "SELECT aggregate_id, seq, written_at, event_id FROM " + chains + " WHERE table_name = ? AND part = ? AND aggregate_id = ?",

		requestAdd:  "INSERT INTO " + requests + " (table_name, id, event_id, aggregate_id, action, version, actor) VALUES (?, now(), ?, ?, ?, ?, ?)",
		requestDrop: "DELETE FROM " + requests + " WHERE table_name = ? AND id = ?",
		requested:   "SELECT DISTINCT table_name FROM " + requests,
		requests: "SELECT id, event_id, aggregate_id, action, version, actor FROM " + requests +
			" WHERE table_name = ? AND id > ?",

		holdAdd:  "INSERT INTO " + holds + " (table_name, rule, failure_key, reason, since, until) VALUES (?, ?, ?, ?, ?, ?)",
		holdDrop: "DELETE FROM " + holds + " WHERE table_name = ? AND rule = ? AND failure_key = ?",
		holds:    "SELECT rule, failure_key, reason, since, until FROM " + holds + " WHERE table_name = ?",
	}
}

// listStatements are the CQL of lists.
type listStatements struct {
	chainAdd, chainDrop                         string
	lookupAdd, lookupDrop, lookups, lookupFirst string
	lookupSizes                                 string
	bucketAdd, bucketDrop, buckets, allBuckets  string
}

func newListStatements(keyspace string) listStatements {
	chains, lookups, buckets := keyspace+".dead_letter_chains", keyspace+".dead_letter_lookups", keyspace+".dead_letter_buckets"
	return listStatements{
		chainAdd: "INSERT INTO " + chains + " (table_name, part, aggregate_id, seq, written_at, event_id) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
		chainDrop: "DELETE FROM " + chains + " USING TIMESTAMP ?" +
			" WHERE table_name = ? AND part = ? AND aggregate_id = ? AND seq = ? AND written_at = ? AND event_id = ?",

		lookupAdd: "INSERT INTO " + lookups + " (kind, value, bucket, first_failed_at, event_id) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?",
		lookupDrop: "DELETE FROM " + lookups + " USING TIMESTAMP ?" +
			" WHERE kind = ? AND value = ? AND bucket = ? AND first_failed_at = ? AND event_id = ?",
		lookups: "SELECT first_failed_at, event_id FROM " + lookups + " WHERE kind = ? AND value = ? AND bucket = ?" +
			" AND first_failed_at >= ? AND first_failed_at < ?",
		lookupFirst: "SELECT first_failed_at FROM " + lookups + " WHERE kind = ? AND value = ? AND bucket = ? ORDER BY first_failed_at ASC LIMIT 1",
		lookupSizes: "SELECT COUNT(*) FROM " + lookups + " WHERE kind = ? AND value = ? AND bucket IN ?",

		bucketAdd:  "INSERT INTO " + buckets + " (kind, value, bucket) VALUES (?, ?, ?)",
		bucketDrop: "DELETE FROM " + buckets + " USING TIMESTAMP ? WHERE kind = ? AND value = ? AND bucket = ?",
		buckets:    "SELECT bucket FROM " + buckets + " WHERE kind = ? AND value = ? AND bucket >= ? AND bucket < ?",
		allBuckets: "SELECT value, bucket FROM " + buckets + " WHERE kind = ?",
	}
}

// editStatements are the CQL of edits.
type editStatements struct {
	editAdd, editIDAdd, edit, edits, editOf string
	hasEdits, editsDrop, editDrop           string
}

func newEditStatements(keyspace string) editStatements {
	edits, editIDs := keyspace+".dead_letter_edits", keyspace+".dead_letter_edit_ids"
	edit := "SELECT edited_id, payload, content_type, headers, topic, edited_by, reason, edited_at FROM " + edits
	return editStatements{
		editAdd: "INSERT INTO " + edits + " (event_id, edited_id, payload, content_type, headers, topic, edited_by, reason, edited_at)" +
			" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		editIDAdd: "INSERT INTO " + editIDs + " (edited_id, event_id) VALUES (?, ?)",
		edit:      edit + " WHERE event_id = ? AND edited_id = ?",
		edits:     edit + " WHERE event_id = ?",
		hasEdits:  "SELECT edited_id FROM " + edits + " WHERE event_id = ? LIMIT 1",
		editsDrop: "DELETE FROM " + edits + " USING TIMESTAMP ? WHERE event_id = ?",
		editDrop:  "DELETE FROM " + edits + " WHERE event_id = ? AND edited_id = ?",
		editOf:    "SELECT event_id FROM " + editIDs + " WHERE edited_id = ?",
	}
}
