// Package jsonform decodes the JSON bodies of untrusted requests.
//
// Check reads a body once before it is decoded, so that the cost of a hostile body is
// linear in its size. Decode then decodes it in one strict pass, and reads an invalid one
// field by field to report every error. List splits a body that is a list into its items.
//
// Bodies that JSON parsers interpret differently are refused, so that every later reader
// of a body sees the same values.
package jsonform
