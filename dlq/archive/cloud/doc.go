// Package cloud links the archives at Amazon S3, Google Cloud Storage and Azure
// into a program that imports it and is built with the tag "cloud". They make a
// binary some 35 MB larger, so they are left out of tests and go run.
//
// It is a part of the program, and may change in any version.
package cloud
