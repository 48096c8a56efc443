// Package cli contains the parts that the command lines of the programs share.
//
// # Vocabulary
//
//   - hint: the user's next step after an error ([WithHint]), printed below it.
//   - error of usage: a wrong command line or configuration ([Usage]); exit status 2.
//   - quiet error: an error whose report is printed already ([QuietError]).
//   - view: the form of an object in JSON and YAML ([Table]).
//   - progress: the line on a terminal that shows how much of a task is done ([Progress]).
//
// Configuration is not part of this package: internal/app and internal/settings read it.
package cli
