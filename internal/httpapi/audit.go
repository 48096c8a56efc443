package httpapi

// AuditBody is the metadata of an operation whose audit entry contains the request body
// and the member "result" of the response. A body with dry_run: true changes nothing and
// is not audited. Use it for operations whose bodies every reader of the audit trail may
// see.
const AuditBody = "audit.body"
