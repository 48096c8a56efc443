// Package drivers tests the statements of package outbox with a driver that is not the one of
// the library. The build tag drivers keeps that driver out of the root module's go.sum.
package drivers
