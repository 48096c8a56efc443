// Package notifications notifies people about dead letters: new ones, and a backlog, a
// rate, a resolution rate or an age of blocked events beyond its limit; and about an
// outage of the broker, which causes dead letters or holds events.
//
// A Watcher polls the store. Of several processes one is on duty; sent notifications are
// stored in the database, so that neither a restart nor a change of duty repeats it. It has
// no part in relaying: nothing waits for it.
//
// It relies on a process saving the notifications that it has sent: one that ends between the two
// lets the next one notify again. None is left out.
//
// It is a part of the program, and may change in any version.
package notifications
