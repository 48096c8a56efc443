// Package chaos kills processes at random moments while events are written, and accounts for
// each of the events afterwards.
package chaos
