//go:build peers

package permissions

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/scylla-outbox/scylla-outbox/test/certs"
	"github.com/scylla-outbox/scylla-outbox/test/peers"
)

// The same commands have the ACLs that they need at a real Kafka with its authorizer.
func TestPeerRoles(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	ca, loopback := certs.NewAuthority(t, dir, "ca"), net.IPv4(127, 0, 0, 1)
	ca.Issue(file("broker.pem"), file("broker.pem"), loopback)
	ca.Issue(file("client.crt"), file("client.key"), loopback)
	secure := &peers.Security{Keystore: file("broker.pem"), Truststore: ca.File, User: root, Password: "secret"}
	for _, r := range Roles {
		secure.Others = append(secure.Others, r.Name)
	}
	broker := peers.StartKafka(t, peers.Config{Heap: "512m", Secure: secure})
	s := startDatabase(t)
	s.kafka = func(user string) []string {
		return []string{
			"OUTBOX_KAFKA_SEEDS=" + broker.Addr, "OUTBOX_KAFKA_SASL=plain", "OUTBOX_KAFKA_USERNAME=" + user, "OUTBOX_KAFKA_PASSWORD=secret",
			"OUTBOX_KAFKA_TLS=true", "OUTBOX_KAFKA_TLS_CA=" + ca.File, "OUTBOX_KAFKA_TLS_CERT=" + file("client.crt"), "OUTBOX_KAFKA_TLS_KEY=" + file("client.key"),
		}
	}
	cert, err := tls.LoadX509KeyPair(file("client.crt"), file("client.key"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr), kgo.SASL(plain.Auth{User: root, Pass: "secret"}.AsMechanism()),
		kgo.DialTLSConfig(&tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true})) //nolint:gosec // the broker of this test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, "notices"); err != nil {
		t.Fatal(err)
	}
	grant(t, admin)
	s.story()
	s.check()
}
