// Package watch notices what people should know of dead letters, and tells them:
// events that died, a backlog, a rate, a resolution rate or a parked chain beyond
// a limit.
//
// A Watcher looks at the store now and then. Of several processes one is on duty;
// what has been told is kept in the database, so that neither a restart nor a
// change of duty tells it again. It has no part in relaying: nothing waits for it.
package watch
