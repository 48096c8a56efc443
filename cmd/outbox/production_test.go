package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/test/certs"
)

// The production example is valid, with the files that it names, and contains every setting that
// has no default for production.
func TestProductionExample(t *testing.T) {
	text, err := os.ReadFile("../../deploy/production.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	const hash = ":sha256:0000000000000000000000000000000000000000000000000000000000000000\n"
	authority := certs.NewAuthority(t, dir, "scylla-ca")
	certs.NewAuthority(t, dir, "kafka-ca")
	authority.Issue(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), net.IPv4(127, 0, 0, 1))
	for name, content := range map[string]string{
		"scylla-password": "a", "kafka-password": "b", "http-tokens": "shop:producer(notices.*)" + hash, "admin-tokens": "ann:admin" + hash,
		"webhook-secrets": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n",
		"notifications":   "on-call=webhook+https://hooks.example.com/outbox\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "outbox.yaml")
	archive := filepath.Join(dir, "archive")
	if err := os.Mkdir(archive, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.NewReplacer("/etc/outbox", dir, "/var/lib/outbox/archive", archive).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := run([]string{"config", "check", "--config", file}, &out, &out); code != cli.ExitOK {
		t.Errorf("outbox config check: exit status %d\n%s", code, out.String())
	}
	var sections map[string]map[string]any
	if err := yaml.Unmarshal(text, &sections); err != nil {
		t.Fatal(err)
	}
	wanted := 0
	for _, s := range app.Settings {
		if !s.Production {
			continue
		}
		wanted++
		section, key, _ := strings.Cut(s.Key, ".")
		if _, ok := sections[section][key]; !ok {
			t.Errorf("deploy/production.yaml lacks %s, which has no default for production", s.Key)
		}
	}
	if wanted == 0 {
		t.Error("found no setting of production")
	}
	for _, line := range regexp.MustCompile(`(?m)^ +(?:password|tokens|targets): .*$`).FindAllString(string(text), -1) {
		if !strings.Contains(line, "file:/etc/outbox/") {
			t.Errorf("a secret is not in a file of its own: %s", line)
		}
	}
}
