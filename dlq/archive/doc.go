// Package archive keeps dead letters outside the database, and moves them there
// when their time has come.
//
// An Archive is a bucket of package gocloud.dev/blob: a folder, or S3, Google
// Cloud Storage or Azure by URL. Letters lie in objects of compressed JSON Lines,
// by day, each with a manifest that is written once the object was read back and
// found whole. A Sweeper moves resolved and failed letters there, removes them
// from the database but for their outline, and removes objects whose time is
// over.
package archive
