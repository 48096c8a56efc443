// Package releases checks that today's programs continue with the data of earlier versions.
//
// testdata contains a file for each version: the rows, topics, consumer groups and archived
// objects that the programs of that version wrote, and the responses that its admin API
// gave for them. TestReleases_Continue loads each file into the embedded engines and
// continues with today's code.
//
// The file of a released version never changes. A new version adds a file:
//
//	go test ./test/releases -update
//
// writes that of the version that is unreleased in CHANGELOG.md, with the story of
// story_test.go, and refuses to change another one. SHA256SUMS has the digests of all files.
// They are compared, and the same test with -digest instead of -update accepts a new file of
// the unreleased version.
package releases
