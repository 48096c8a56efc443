// Package doctor checks that a relay can work with its configuration: the database, the
// schema, the permissions, the topics, the archive, the instances that run, and the results of
// the continuous verification.
//
// # Vocabulary
//
//   - check: one question about the installation, such as whether checkpoints can be saved.
//   - finding: the result of a check ([Finding]): passed, or failed with a fix.
//   - fix: the operator's next step, a command or a setting.
//   - heard of: an instance whose heartbeat in relay_instances is recent. One that is silent
//     and has not reported that it stopped is gone.
//
// [Check] runs all checks.
//
// The package repairs nothing, and prints nothing: the command outbox doctor does that.
package doctor
