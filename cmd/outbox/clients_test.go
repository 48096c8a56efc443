package main

import (
	"errors"
	"strings"
	"testing"
)

// Half of what it takes to log in is a mistake: the client would go without, and the
// server say no, or worse, yes.
func TestClients_HalfALogin(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"scylla: {password: hush}":                  "scylla.username",
		"kafka: {username: relay}":                  "kafka.sasl",
		"kafka: {password: hush}":                   "kafka.sasl",
		"kafka: {sasl: plain, password: hush}":      "kafka.username",
		"kafka: {sasl: gssapi, username: relay}":    "scram-sha-512",
		"kafka: {sasl: plain, username: relay}":     "",
		"scylla: {username: relay, password: hush}": "",
	} {
		c, err := testConfig(t, file, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, kafka := c.Kafka.options()
		_, scylla := c.Scylla.cluster("")
		err = errors.Join(kafka, scylla)
		switch {
		case want == "":
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
		case err == nil || !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush"):
			t.Errorf("%s: %v, want %s named", file, err, want)
		}
	}
}
