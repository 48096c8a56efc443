// Package drivers tests the statements of package outbox with a driver that is not the one of
// the library.
package drivers
