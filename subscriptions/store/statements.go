package store

type statements struct {
	statics, claim, firstClaim, write, writeOne, setTopic string
	handOver, setHandOver                                 string
	messages, message, record, save, saveState, remove    string
	addPartition, partitions, dropPartition, dropAll      string
	skip, skips, acknowledge                              string
	putKey, key                                           string
	report, instances                                     string
	put, firstPut, remember, get, list, unmark, drop      string
}

const (
	resourceColumns = "name, version, change_id, topics, types, filter, transform, start, ordering, visibility_timeout_ms, max_extension_ms, max_receive, backoff_ms, max_backoff_ms, backoff_multiplier," +
		" push, dead_letter, paused, seeks, last_purge, created_at, changed_at, changed_by, deleted"
	recordColumns = "record_at, record_key, record_value, record_headers"
)

func newStatements(keyspace string) statements {
	const (
		partition = " WHERE subscription = ? AND topic = ? AND topic_partition = ?"
		row       = partition + " AND record_offset = ?"
		state     = "message_key = ?, state = ?, attempts = ?, next_attempt = ?, first_at = ?, error = ?, dead_letter_id = ?, edited = ?"
		record    = ", record_at = ?, record_key = ?, record_value = ?, record_headers = ?"
		mine      = " IF epoch = ? AND last_write = ?"
		resource  = " WHERE scope = 'keyspace' AND name = ?"
		spec      = "version = ?, change_id = ?, topics = ?, types = ?, filter = ?, transform = ?, start = ?, ordering = ?, visibility_timeout_ms = ?, max_extension_ms = ?, max_receive = ?," +
			" backoff_ms = ?, max_backoff_ms = ?, backoff_multiplier = ?, push = ?, dead_letter = ?, paused = ?, seeks = ?, last_purge = ?, created_at = ?, changed_at = ?, changed_by = ?"
	)
	messages, parts, settings := keyspace+".subscription_messages", keyspace+".subscription_partitions", keyspace+".subscription_settings"
	instances, resources := keyspace+".subscription_instances", keyspace+".subscriptions"
	return statements{
		// Only the static columns: a row with deleted rows before it would be expensive.
		statics:    "SELECT DISTINCT subscription, topic, topic_partition, epoch, owner, last_write, first_offset, topic_id FROM " + messages + partition,
		claim:      "UPDATE " + messages + " SET epoch = ?, owner = ?, last_write = ?" + partition + " IF epoch = ?",
		firstClaim: "UPDATE " + messages + " SET epoch = ?, owner = ?, last_write = ?" + partition + " IF epoch = null",
		write:      "UPDATE " + messages + " SET last_write = ?, first_offset = ?" + partition + mine,
		// Alone, as it may be large.
		handOver:    "SELECT DISTINCT subscription, topic, topic_partition, leases FROM " + messages + partition,
		setHandOver: "UPDATE " + messages + " SET last_write = ?, first_offset = ?, leases = ?" + partition + mine,

		setTopic: "UPDATE " + messages + " SET topic_id = ?" + partition,
		writeOne: "UPDATE " + messages + " SET last_write = ?, first_offset = ?, " + state + record + row + mine,

		messages: "SELECT record_offset, message_key, state, attempts, next_attempt, first_at, error, dead_letter_id, edited, record_at FROM " + messages + partition + " AND record_offset >= ? AND record_offset <= ? LIMIT ?",
		message:  "SELECT message_key, state, attempts, next_attempt, first_at, error, dead_letter_id, edited, record_at FROM " + messages + row,
		record:   "SELECT state, " + recordColumns + " FROM " + messages + row,
		// Not INSERT: a row consists of its columns, as an update of a missing row shows.
		save:      "UPDATE " + messages + " SET " + state + record + row,
		saveState: "UPDATE " + messages + " SET " + state + row,
		remove:    "DELETE FROM " + messages + row,

		addPartition:  "INSERT INTO " + parts + " (subscription, topic, topic_partition) VALUES (?, ?, ?)",
		partitions:    "SELECT topic, topic_partition FROM " + parts + " WHERE subscription = ?",
		dropPartition: "DELETE FROM " + parts + partition,
		dropAll:       "DELETE FROM " + messages + partition,

		skip:        "UPDATE " + parts + " SET skips[?] = ?" + partition,
		acknowledge: "UPDATE " + parts + " SET acknowledged[?] = ?" + partition,
		skips:       "SELECT topic, topic_partition, skips, acknowledged FROM " + parts + " WHERE subscription = ?",

		putKey: "INSERT INTO " + settings + " (name, value) VALUES (?, ?) IF NOT EXISTS",
		key:    "SELECT value FROM " + settings + " WHERE name = ?",

		report:    "INSERT INTO " + instances + " (subscription, instance, address, at, partitions, last_error, breaker) VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ?",
		instances: "SELECT instance, address, at, partitions, last_error, breaker FROM " + instances + " WHERE subscription = ?",

		put:      "UPDATE " + resources + " SET " + spec + resource + " IF version = ?",
		firstPut: "UPDATE " + resources + " SET " + spec + resource + " IF version = null",
		remember: "UPDATE " + resources + " SET " + spec + ", deleted[?] = ?" + resource + " IF version = ?",
		get:      "SELECT " + resourceColumns + " FROM " + resources + resource,
		list:     "SELECT " + resourceColumns + " FROM " + resources + " WHERE scope = 'keyspace'",
		unmark:   "UPDATE " + resources + " SET deleted = deleted - ?" + resource + " IF version = ?",
		drop:     "DELETE FROM " + resources + resource + " IF version = ?",
	}
}
