// Package cli is what the command lines of the programs share: errors with hints and exit
// statuses, output as text and JSON, and progress on a terminal.
package cli
