// Package payload stores payloads that are too large for an event: the claim check
// pattern.
//
// The payload is stored first, and then the event with an empty payload and a
// reference in the record header ce_dataref, the attribute dataref of CloudEvents.
// An event therefore never refers to a payload that was not stored. The reference is
// the key of the payload in its Store and contains its size and its SHA-256, so that a
// consumer detects a payload that is not the one of the event.
//
// Writers use outbox.MovePayload, consumers outbox.LoadPayload, Delivery.Load of
// package client, or Resolve. Package payload does not know when a payload is needed no
// longer: every payload has the same lifetime, see Folder.Expire.
package payload
