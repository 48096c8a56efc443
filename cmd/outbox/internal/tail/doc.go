// Package tail is the command outbox tail, which prints the events of topics as they
// arrive. It does not join a consumer group and commits no positions.
package tail
