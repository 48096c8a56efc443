package httpapi

// AuditBody is the metadata of an operation whose audit shall have what was asked,
// the request's body, and what came of it, the member "result" of the answer. A body
// with dry_run: true changes nothing and is not audited. It is for operations whose
// bodies hold nothing that is not for all who may read the audit.
const AuditBody = "audit.body"
