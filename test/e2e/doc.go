// Package e2e runs the whole path as a user does: the outbox binary, an order
// posted to the API, its event in a topic.
package e2e
