// Package jsonform reads the JSON bodies of requests without trusting them.
//
// Check passes once over a body before anything is made of it, so that a hostile
// one costs the reading of its bytes and no more. Decode then takes it in one
// strict pass, and takes only a bad one apart to name all that is wrong with it.
// List cuts a body that is a list into its items.
//
// An API has the same answer for every body whatever reads it later: what
// readers of JSON understand in different ways is refused.
package jsonform
