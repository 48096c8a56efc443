// Package plugin delivers the messages of subscriptions to destinations: to e-mail, Slack and
// other services, to signed webhooks, or to Go code. Package push runs Go code.
//
// A destination is a named target, so that its URL and secrets are in the configuration
// alone, or a Plugin of the process. The engine leases the messages, calls Process, and
// settles them: nil acknowledges, an error is a failed delivery, and one that Permanent
// marks rejects the message.
//
// Delivery is at least once, and relies on a destination that knows the delivery ids of the
// messages that it has accepted: otherwise it processes a message again after a crash, or after a
// call that was interrupted.
//
// It is a part of the program, and may change in any version.
package plugin
