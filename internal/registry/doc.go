// Package registry reads schemas from a Confluent-compatible schema registry. It decides
// whether the payload of a message fits the newest schema of its topic, and decodes payloads
// in the wire format of such registries into JSON.
//
// A payload in the wire format begins with a byte 0 and the id of its schema, four bytes. In
// Protobuf the path of the message type in its file follows. Schemas of an id never change.
// The newest schema of a subject is used for lifetime, and longer while the registry is
// unreachable. Payloads and schemas are bounded in size and depth.
//
// A lookup has one of four results, which are cached for different times: a schema; unknown, by
// the registry's own error codes; refused, which a retry does not change; unavailable. Only
// failures of the registry as a whole pause the requests of all lookups. A schema that cannot be
// used does not refuse messages: they are not checked.
//
// The package writes nothing to the registry, and does not encode payloads.
package registry
