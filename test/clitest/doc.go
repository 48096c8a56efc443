// Package clitest helps the tests of command lines: configurations from a file, an
// environment and flags, and documents whose command lines are checked against the
// commands of a program.
package clitest
