package cql

// class defines where a keyword is allowed as an identifier.
type class uint8

const (
	reserved class = iota
	// basicName: any identifier, type names included.
	basicName
	// typeName: the native types; any identifier but a user type's name.
	typeName
	// columnName: any identifier but a function's name.
	columnName
)

// The keywords of ScyllaDB 5.1.
const (
	kAdd kind = firstKeyword + iota
	kAggregate
	kAll
	kAllow
	kAlter
	kAnd
	kApply
	kAs
	kAsc
	kAscii
	kAttach
	kAttached
	kAuthorize
	kBatch
	kBegin
	kBigint
	kBlob
	kBoolean
	kBy
	kBypass
	kCache
	kCalled
	kCast
	kClustering
	kColumnfamily
	kCompact
	kContains
	kCount
	kCounter
	kCreate
	kCustom
	kDate
	kDecimal
	kDefault
	kDelete
	kDesc
	kDescribe
	kDetach
	kDistinct
	kDouble
	kDrop
	kDuration
	kEmpty
	kEntries
	kExists
	kFiltering
	kFinalfunc
	kFloat
	kFor
	kFrom
	kFrozen
	kFull
	kFunction
	kGrant
	kGroup
	kIf
	kIn
	kIndex
	kInet
	kInfinity
	kInitcond
	kInput
	kInsert
	kInt
	kInto
	kIs
	kJson
	kKey
	kKeys
	kKeyspace
	kKeyspaces
	kLanguage
	kLevel
	kLevels
	kLike
	kLimit
	kList
	kLogin
	kMap
	kMaterialized
	kModify
	kNan
	kNologin
	kNorecursive
	kNosuperuser
	kNot
	kNull
	kOf
	kOn
	kOptions
	kOr
	kOrder
	kPartition
	kPassword
	kPer
	kPermission
	kPermissions
	kPrimary
	kPrune
	kReducefunc
	kRename
	kReplace
	kReturns
	kRevoke
	kRole
	kRoles
	kScyllaClusteringBound
	kScyllaCounterShardList
	kScyllaTimeuuidListIndex
	kSelect
	kService
	kServiceLevel
	kServiceLevels
	kSet
	kSfunc
	kSmallint
	kStatic
	kStorage
	kStype
	kSuperuser
	kText
	kTime
	kTimeout
	kTimestamp
	kTimeuuid
	kTinyint
	kTo
	kToken
	kTrigger
	kTruncate
	kTtl
	kTuple
	kType
	kUnlogged
	kUnset
	kUpdate
	kUse
	kUser
	kUsers
	kUsing
	kUuid
	kValues
	kVarchar
	kVarint
	kView
	kWhere
	kWith
	kWritetime
	lastKeyword
)

// keywords contains ANTLR's name of each keyword (without K_), its spelling, and
// whether it is reserved.
var keywords = [lastKeyword - firstKeyword]struct {
	name     string
	class    class
	spelling []string
}{
	kAdd - firstKeyword:                     {"ADD", reserved, []string{"add"}},
	kAggregate - firstKeyword:               {"AGGREGATE", basicName, []string{"aggregate"}},
	kAll - firstKeyword:                     {"ALL", basicName, []string{"all"}},
	kAllow - firstKeyword:                   {"ALLOW", reserved, []string{"allow"}},
	kAlter - firstKeyword:                   {"ALTER", reserved, []string{"alter"}},
	kAnd - firstKeyword:                     {"AND", reserved, []string{"and"}},
	kApply - firstKeyword:                   {"APPLY", reserved, []string{"apply"}},
	kAs - firstKeyword:                      {"AS", basicName, []string{"as"}},
	kAsc - firstKeyword:                     {"ASC", reserved, []string{"asc"}},
	kAscii - firstKeyword:                   {"ASCII", typeName, []string{"ascii"}},
	kAttach - firstKeyword:                  {"ATTACH", basicName, []string{"attach"}},
	kAttached - firstKeyword:                {"ATTACHED", basicName, []string{"attached"}},
	kAuthorize - firstKeyword:               {"AUTHORIZE", reserved, []string{"authorize"}},
	kBatch - firstKeyword:                   {"BATCH", reserved, []string{"batch"}},
	kBegin - firstKeyword:                   {"BEGIN", reserved, []string{"begin"}},
	kBigint - firstKeyword:                  {"BIGINT", typeName, []string{"bigint"}},
	kBlob - firstKeyword:                    {"BLOB", typeName, []string{"blob"}},
	kBoolean - firstKeyword:                 {"BOOLEAN", typeName, []string{"boolean"}},
	kBy - firstKeyword:                      {"BY", reserved, []string{"by"}},
	kBypass - firstKeyword:                  {"BYPASS", basicName, []string{"bypass"}},
	kCache - firstKeyword:                   {"CACHE", basicName, []string{"cache"}},
	kCalled - firstKeyword:                  {"CALLED", basicName, []string{"called"}},
	kCast - firstKeyword:                    {"CAST", reserved, []string{"cast"}},
	kClustering - firstKeyword:              {"CLUSTERING", basicName, []string{"clustering"}},
	kColumnfamily - firstKeyword:            {"COLUMNFAMILY", reserved, []string{"columnfamily", "table"}},
	kCompact - firstKeyword:                 {"COMPACT", basicName, []string{"compact"}},
	kContains - firstKeyword:                {"CONTAINS", basicName, []string{"contains"}},
	kCount - firstKeyword:                   {"COUNT", columnName, []string{"count"}},
	kCounter - firstKeyword:                 {"COUNTER", typeName, []string{"counter"}},
	kCreate - firstKeyword:                  {"CREATE", reserved, []string{"create"}},
	kCustom - firstKeyword:                  {"CUSTOM", basicName, []string{"custom"}},
	kDate - firstKeyword:                    {"DATE", typeName, []string{"date"}},
	kDecimal - firstKeyword:                 {"DECIMAL", typeName, []string{"decimal"}},
	kDefault - firstKeyword:                 {"DEFAULT", reserved, []string{"default"}},
	kDelete - firstKeyword:                  {"DELETE", reserved, []string{"delete"}},
	kDesc - firstKeyword:                    {"DESC", reserved, []string{"desc"}},
	kDescribe - firstKeyword:                {"DESCRIBE", reserved, []string{"describe"}},
	kDetach - firstKeyword:                  {"DETACH", basicName, []string{"detach"}},
	kDistinct - firstKeyword:                {"DISTINCT", basicName, []string{"distinct"}},
	kDouble - firstKeyword:                  {"DOUBLE", typeName, []string{"double"}},
	kDrop - firstKeyword:                    {"DROP", reserved, []string{"drop"}},
	kDuration - firstKeyword:                {"DURATION", typeName, []string{"duration"}},
	kEmpty - firstKeyword:                   {"EMPTY", typeName, []string{"empty"}},
	kEntries - firstKeyword:                 {"ENTRIES", reserved, []string{"entries"}},
	kExists - firstKeyword:                  {"EXISTS", basicName, []string{"exists"}},
	kFiltering - firstKeyword:               {"FILTERING", basicName, []string{"filtering"}},
	kFinalfunc - firstKeyword:               {"FINALFUNC", basicName, []string{"finalfunc"}},
	kFloat - firstKeyword:                   {"FLOAT", typeName, []string{"float"}},
	kFor - firstKeyword:                     {"FOR", basicName, []string{"for"}},
	kFrom - firstKeyword:                    {"FROM", reserved, []string{"from"}},
	kFrozen - firstKeyword:                  {"FROZEN", basicName, []string{"frozen"}},
	kFull - firstKeyword:                    {"FULL", reserved, []string{"full"}},
	kFunction - firstKeyword:                {"FUNCTION", basicName, []string{"function"}},
	kGrant - firstKeyword:                   {"GRANT", reserved, []string{"grant"}},
	kGroup - firstKeyword:                   {"GROUP", basicName, []string{"group"}},
	kIf - firstKeyword:                      {"IF", reserved, []string{"if"}},
	kIn - firstKeyword:                      {"IN", reserved, []string{"in"}},
	kIndex - firstKeyword:                   {"INDEX", reserved, []string{"index"}},
	kInet - firstKeyword:                    {"INET", typeName, []string{"inet"}},
	kInfinity - firstKeyword:                {"INFINITY", reserved, []string{"infinity"}},
	kInitcond - firstKeyword:                {"INITCOND", basicName, []string{"initcond"}},
	kInput - firstKeyword:                   {"INPUT", basicName, []string{"input"}},
	kInsert - firstKeyword:                  {"INSERT", reserved, []string{"insert"}},
	kInt - firstKeyword:                     {"INT", typeName, []string{"int"}},
	kInto - firstKeyword:                    {"INTO", reserved, []string{"into"}},
	kIs - firstKeyword:                      {"IS", reserved, []string{"is"}},
	kJson - firstKeyword:                    {"JSON", basicName, []string{"json"}},
	kKey - firstKeyword:                     {"KEY", columnName, []string{"key"}},
	kKeys - firstKeyword:                    {"KEYS", basicName, []string{"keys"}},
	kKeyspace - firstKeyword:                {"KEYSPACE", reserved, []string{"keyspace", "schema"}},
	kKeyspaces - firstKeyword:               {"KEYSPACES", basicName, []string{"keyspaces"}},
	kLanguage - firstKeyword:                {"LANGUAGE", basicName, []string{"language"}},
	kLevel - firstKeyword:                   {"LEVEL", basicName, []string{"level"}},
	kLevels - firstKeyword:                  {"LEVELS", basicName, []string{"levels"}},
	kLike - firstKeyword:                    {"LIKE", basicName, []string{"like"}},
	kLimit - firstKeyword:                   {"LIMIT", reserved, []string{"limit"}},
	kList - firstKeyword:                    {"LIST", basicName, []string{"list"}},
	kLogin - firstKeyword:                   {"LOGIN", basicName, []string{"login"}},
	kMap - firstKeyword:                     {"MAP", basicName, []string{"map"}},
	kMaterialized - firstKeyword:            {"MATERIALIZED", reserved, []string{"materialized"}},
	kModify - firstKeyword:                  {"MODIFY", reserved, []string{"modify"}},
	kNan - firstKeyword:                     {"NAN", reserved, []string{"nan"}},
	kNologin - firstKeyword:                 {"NOLOGIN", basicName, []string{"nologin"}},
	kNorecursive - firstKeyword:             {"NORECURSIVE", reserved, []string{"norecursive"}},
	kNosuperuser - firstKeyword:             {"NOSUPERUSER", basicName, []string{"nosuperuser"}},
	kNot - firstKeyword:                     {"NOT", reserved, []string{"not"}},
	kNull - firstKeyword:                    {"NULL", reserved, []string{"null"}},
	kOf - firstKeyword:                      {"OF", reserved, []string{"of"}},
	kOn - firstKeyword:                      {"ON", reserved, []string{"on"}},
	kOptions - firstKeyword:                 {"OPTIONS", basicName, []string{"options"}},
	kOr - firstKeyword:                      {"OR", reserved, []string{"or"}},
	kOrder - firstKeyword:                   {"ORDER", reserved, []string{"order"}},
	kPartition - firstKeyword:               {"PARTITION", basicName, []string{"partition"}},
	kPassword - firstKeyword:                {"PASSWORD", basicName, []string{"password"}},
	kPer - firstKeyword:                     {"PER", basicName, []string{"per"}},
	kPermission - firstKeyword:              {"PERMISSION", basicName, []string{"permission"}},
	kPermissions - firstKeyword:             {"PERMISSIONS", basicName, []string{"permissions"}},
	kPrimary - firstKeyword:                 {"PRIMARY", reserved, []string{"primary"}},
	kPrune - firstKeyword:                   {"PRUNE", basicName, []string{"prune"}},
	kReducefunc - firstKeyword:              {"REDUCEFUNC", basicName, []string{"reducefunc"}},
	kRename - firstKeyword:                  {"RENAME", reserved, []string{"rename"}},
	kReplace - firstKeyword:                 {"REPLACE", reserved, []string{"replace"}},
	kReturns - firstKeyword:                 {"RETURNS", basicName, []string{"returns"}},
	kRevoke - firstKeyword:                  {"REVOKE", reserved, []string{"revoke"}},
	kRole - firstKeyword:                    {"ROLE", basicName, []string{"role"}},
	kRoles - firstKeyword:                   {"ROLES", basicName, []string{"roles"}},
	kScyllaClusteringBound - firstKeyword:   {"SCYLLA_CLUSTERING_BOUND", reserved, []string{"scylla_clustering_bound"}},
	kScyllaCounterShardList - firstKeyword:  {"SCYLLA_COUNTER_SHARD_LIST", reserved, []string{"scylla_counter_shard_list"}},
	kScyllaTimeuuidListIndex - firstKeyword: {"SCYLLA_TIMEUUID_LIST_INDEX", reserved, []string{"scylla_timeuuid_list_index"}},
	kSelect - firstKeyword:                  {"SELECT", reserved, []string{"select"}},
	kService - firstKeyword:                 {"SERVICE", basicName, []string{"service"}},
	kServiceLevel - firstKeyword:            {"SERVICE_LEVEL", basicName, []string{"service_level"}},
	kServiceLevels - firstKeyword:           {"SERVICE_LEVELS", basicName, []string{"service_levels"}},
	kSet - firstKeyword:                     {"SET", reserved, []string{"set"}},
	kSfunc - firstKeyword:                   {"SFUNC", basicName, []string{"sfunc"}},
	kSmallint - firstKeyword:                {"SMALLINT", typeName, []string{"smallint"}},
	kStatic - firstKeyword:                  {"STATIC", basicName, []string{"static"}},
	kStorage - firstKeyword:                 {"STORAGE", basicName, []string{"storage"}},
	kStype - firstKeyword:                   {"STYPE", basicName, []string{"stype"}},
	kSuperuser - firstKeyword:               {"SUPERUSER", basicName, []string{"superuser"}},
	kText - firstKeyword:                    {"TEXT", typeName, []string{"text"}},
	kTime - firstKeyword:                    {"TIME", typeName, []string{"time"}},
	kTimeout - firstKeyword:                 {"TIMEOUT", basicName, []string{"timeout"}},
	kTimestamp - firstKeyword:               {"TIMESTAMP", typeName, []string{"timestamp"}},
	kTimeuuid - firstKeyword:                {"TIMEUUID", typeName, []string{"timeuuid"}},
	kTinyint - firstKeyword:                 {"TINYINT", typeName, []string{"tinyint"}},
	kTo - firstKeyword:                      {"TO", reserved, []string{"to"}},
	kToken - firstKeyword:                   {"TOKEN", reserved, []string{"token"}},
	kTrigger - firstKeyword:                 {"TRIGGER", basicName, []string{"trigger"}},
	kTruncate - firstKeyword:                {"TRUNCATE", reserved, []string{"truncate"}},
	kTtl - firstKeyword:                     {"TTL", columnName, []string{"ttl"}},
	kTuple - firstKeyword:                   {"TUPLE", basicName, []string{"tuple"}},
	kType - firstKeyword:                    {"TYPE", basicName, []string{"type"}},
	kUnlogged - firstKeyword:                {"UNLOGGED", reserved, []string{"unlogged"}},
	kUnset - firstKeyword:                   {"UNSET", reserved, []string{"unset"}},
	kUpdate - firstKeyword:                  {"UPDATE", reserved, []string{"update"}},
	kUse - firstKeyword:                     {"USE", reserved, []string{"use"}},
	kUser - firstKeyword:                    {"USER", basicName, []string{"user"}},
	kUsers - firstKeyword:                   {"USERS", basicName, []string{"users"}},
	kUsing - firstKeyword:                   {"USING", reserved, []string{"using"}},
	kUuid - firstKeyword:                    {"UUID", typeName, []string{"uuid"}},
	kValues - firstKeyword:                  {"VALUES", basicName, []string{"values"}},
	kVarchar - firstKeyword:                 {"VARCHAR", typeName, []string{"varchar"}},
	kVarint - firstKeyword:                  {"VARINT", typeName, []string{"varint"}},
	kView - firstKeyword:                    {"VIEW", reserved, []string{"view"}},
	kWhere - firstKeyword:                   {"WHERE", reserved, []string{"where"}},
	kWith - firstKeyword:                    {"WITH", reserved, []string{"with"}},
	kWritetime - firstKeyword:               {"WRITETIME", columnName, []string{"writetime"}},
}

// keywordOf finds a keyword by its lower-case spelling.
var keywordOf = func() map[string]kind {
	m := make(map[string]kind, len(keywords)+2)
	for i, k := range keywords {
		for _, s := range k.spelling {
			m[s] = firstKeyword + kind(i)
		}
	}
	return m
}()

// longestKeyword limits the words searched in keywordOf.
var longestKeyword = func() int {
	n := 0
	for s := range keywordOf {
		n = max(n, len(s))
	}
	return n
}()

// Sets of kinds by the rules that they may begin.
var (
	// identStart: columns, tables, keyspaces.
	identStart = classSet(basicName, typeName, columnName).union(setOf(tIdent, tQuoted))
	// nameStart: as identStart, and the marker that is refused with its own message.
	nameStart = identStart.union(setOf(tQMark))
	// funcStart: function names.
	funcStart   = classSet(basicName, typeName).union(setOf(tIdent, tQuoted, kToken, kCount))
	relationOps = setOf(tEqual, tLess, tLessEq, tGreater, tGreaterEq, tNotEq, kLike)
	constants   = setOf(tString, tInteger, tFloat, tBool, tDuration, tUUID, tHex, tMinus, kNan, kInfinity)
	valueStart  = constants.union(setOf(tLParen, tLBracket, tLBrace, kNull, tColon, tQMark))
	termStart   = valueStart.union(funcStart).union(identStart)
)

func classSet(classes ...class) kindSet {
	var s kindSet
	for i, k := range keywords {
		for _, c := range classes {
			if k.class == c {
				s = s.union(setOf(firstKeyword + kind(i)))
			}
		}
	}
	return s
}
