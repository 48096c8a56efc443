package cql

// unsupportedStatements are the beginnings of statements of the grammar that this
// server refuses. Longer ones precede shorter ones.
var unsupportedStatements = []struct {
	words []kind
	what  string
}{
	{[]kind{kCreate, kOr, kReplace, kFunction}, "CREATE FUNCTION"},
	{[]kind{kCreate, kFunction}, "CREATE FUNCTION"},
	{[]kind{kDrop, kFunction}, "DROP FUNCTION"},
	{[]kind{kCreate, kOr, kReplace, kAggregate}, "CREATE AGGREGATE"},
	{[]kind{kCreate, kAggregate}, "CREATE AGGREGATE"},
	{[]kind{kDrop, kAggregate}, "DROP AGGREGATE"},
	{[]kind{kCreate, kUser}, "CREATE USER"},
	{[]kind{kAlter, kUser}, "ALTER USER"},
	{[]kind{kDrop, kUser}, "DROP USER"},
	{[]kind{kList, kUsers}, "LIST USERS"},
	{[]kind{kCreate, kRole}, "CREATE ROLE"},
	{[]kind{kAlter, kRole}, "ALTER ROLE"},
	{[]kind{kDrop, kRole}, "DROP ROLE"},
	{[]kind{kList, kRoles}, "LIST ROLES"},
	{[]kind{kCreate, kService, kLevel}, "CREATE SERVICE LEVEL"},
	{[]kind{kCreate, kServiceLevel}, "CREATE SERVICE LEVEL"},
	{[]kind{kAlter, kService, kLevel}, "ALTER SERVICE LEVEL"},
	{[]kind{kAlter, kServiceLevel}, "ALTER SERVICE LEVEL"},
	{[]kind{kDrop, kService, kLevel}, "DROP SERVICE LEVEL"},
	{[]kind{kDrop, kServiceLevel}, "DROP SERVICE LEVEL"},
	{[]kind{kAttach}, "ATTACH SERVICE LEVEL"},
	{[]kind{kDetach}, "DETACH SERVICE LEVEL"},
	{[]kind{kList, kService, kLevel}, "LIST SERVICE LEVEL"},
	{[]kind{kList, kServiceLevel}, "LIST SERVICE LEVEL"},
	{[]kind{kList, kAttached}, "LIST SERVICE LEVEL"},
	{[]kind{kList, kAll}, "LIST"}, // permissions or service levels
	{[]kind{kList, kCreate}, "LIST PERMISSIONS"},
	{[]kind{kList, kAlter}, "LIST PERMISSIONS"},
	{[]kind{kList, kDrop}, "LIST PERMISSIONS"},
	{[]kind{kList, kSelect}, "LIST PERMISSIONS"},
	{[]kind{kList, kModify}, "LIST PERMISSIONS"},
	{[]kind{kList, kAuthorize}, "LIST PERMISSIONS"},
	{[]kind{kList, kDescribe}, "LIST PERMISSIONS"},
	{[]kind{kGrant}, "GRANT"},
	{[]kind{kRevoke}, "REVOKE"},
	{[]kind{kPrune, kMaterialized, kView}, "PRUNE MATERIALIZED VIEW"},
}

// unsupported recognises a statement by its first words and skips the rest of it
// unchecked; nil if it is none of these.
func (p *parser) unsupported() Statement {
	for _, u := range unsupportedStatements {
		if !p.acceptAll(u.words...) {
			continue
		}
		for p.kind() != tEOF && p.kind() != tSemicolon {
			p.next()
		}
		return &Unsupported{What: u.what}
	}
	return nil
}
