// Package topics are the operations of the operators' API that read topics: the list of the
// topics with their offsets, and the records of one topic, newest first.
//
// A page is a list of records, newest first. Records of one partition are in the order of
// their offsets, records of several partitions in the order of their times. A page has two
// cursors, each with an offset for every partition: next, from which the following page
// continues with older records, and after, the ends of the page, from which a later request
// reads the records that have arrived since. A client that repeats the latter follows the
// topic. It never falls behind: of more new records than the limit it receives the newest,
// and the number of the others.
//
// A read is bounded in time, bytes and number, and uses a client without a consumer group,
// so that it changes nothing at the broker. It returns committed records only. Only the
// topics of the event streams are readable, and never an internal topic.
//
// The package does not write, does not search payloads, and holds no state between requests.
package topics
