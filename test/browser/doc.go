// Package browser drives the web console in a real headless Chromium, against
// the real API, relay, database and broker in one process (build tag browser).
//
// OUTBOX_SCREENSHOTS names a folder that gets pictures of every page.
// testdata/axe-* is axe-core by Deque Systems, MPL 2.0, unchanged but compressed;
// only these tests use it.
package browser
