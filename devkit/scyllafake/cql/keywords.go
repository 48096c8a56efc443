package cql

import "strings"

// The keywords of ScyllaDB 5.1 by their use as identifiers.
const (
	reservedWords = `
add allow alter and apply asc authorize batch begin by cast columnfamily create default delete desc describe
drop entries from full grant if in index infinity insert into is keyspace limit materialized modify nan
norecursive not null of on or order primary rename replace revoke scylla_clustering_bound
scylla_counter_shard_list scylla_timeuuid_list_index select set to token truncate unlogged unset update use
using view where with`
	// basicWords are any identifier, type names included.
	basicWords = `
aggregate all as attach attached bypass cache called clustering compact contains custom detach distinct exists
filtering finalfunc for frozen function group initcond input json keys keyspaces language level levels like
list login map nologin nosuperuser options partition password per permission permissions prune reducefunc
returns role roles service service_level service_levels sfunc static storage stype superuser timeout trigger
tuple type user users values`
	// typeWords are the native types: any identifier but a user type's name.
	typeWords = `
ascii bigint blob boolean counter date decimal double duration empty float inet int smallint text time
timestamp timeuuid tinyint uuid varchar varint`
	// columnWords are any identifier but a function's name.
	columnWords = `count key ttl writetime`
)

// keywordOf finds a keyword by its lower-case spelling. A keyword's kind is ANTLR's name.
var keywordOf = func() map[string]kind {
	m := map[string]kind{}
	for _, word := range strings.Fields(reservedWords + " " + basicWords + " " + typeWords + " " + columnWords) {
		m[word] = kind("K_" + strings.ToUpper(word))
	}
	m["table"], m["schema"] = "K_COLUMNFAMILY", "K_KEYSPACE"
	return m
}()

// Sets of kinds by the rules that they may begin.
var (
	// identStart: columns, tables, keyspaces.
	identStart = words(basicWords, typeWords, columnWords).union(newKindSet(tIdent, tQuoted))
	// nameStart: as identStart, and the marker that is refused with its own message.
	nameStart = identStart.union(newKindSet(tQMark))
	// funcStart: function names.
	funcStart   = words(basicWords, typeWords).union(newKindSet(tIdent, tQuoted, "K_TOKEN", "K_COUNT"))
	relationOps = newKindSet(tEqual, tLess, tLessEq, tGreater, tGreaterEq, tNotEq, "K_LIKE")
	constants   = newKindSet(tString, tInteger, tFloat, tBool, tDuration, tUUID, tHex, tMinus, "K_NAN", "K_INFINITY")
	valueStart  = constants.union(newKindSet(tLParen, tLBracket, tLBrace, "K_NULL", tColon, tQMark))
	termStart   = valueStart.union(funcStart).union(identStart)
)

func words(lists ...string) kindSet {
	s := kindSet{}
	for _, word := range strings.Fields(strings.Join(lists, " ")) {
		s[keywordOf[word]] = true
	}
	return s
}
