// Package drivers tests the statements of package outbox with drivers that are not the one of the
// library, and with a wrapper. The build tag drivers keeps them out of the root module's go.sum.
package drivers
