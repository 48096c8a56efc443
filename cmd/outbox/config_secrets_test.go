package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every secret may be kept in a file or in another variable; the end of the line is no
// part of it, other spaces are.
func TestSecrets_FromFilesAndVariables(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "file:" + path
	}
	entry := func(name string) string { return name + ":viewer:sha256:" + strings.Repeat("ab", 32) }
	t.Setenv("MY_KAFKA", "from a variable")
	t.Setenv("MY_TOKENS", entry("x")+","+entry("y"))
	c, err := testConfig(t, "", map[string]string{
		"OUTBOX_SCYLLA_PASSWORD": write("scylla", " pass word \r\n"), "OUTBOX_KAFKA_PASSWORD": "env:MY_KAFKA",
		"OUTBOX_HTTP_TOKENS": write("tokens", entry("a")+"\n\n"+entry("b")+"\n") + "," + entry("file"), "OUTBOX_HTTP_HINT_KEY": write("hint", "0123456789abcdef\n"),
		"OUTBOX_ADMIN_TOKENS": "env:MY_TOKENS", "OUTBOX_RELAY_HINT_KEY": "as it is",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ name, got, want string }{
		{"scylla.password", c.Scylla.Password, " pass word "},
		{"kafka.password", c.Kafka.Password, "from a variable"},
		{"http.tokens", strings.Join(c.HTTP.Tokens, "|"), strings.Join([]string{entry("a"), entry("b"), entry("file")}, "|")},
		{"http.hint_key", c.HTTP.HintKey, "0123456789abcdef"},
		{"admin.tokens", strings.Join(c.Admin.Tokens, "|"), entry("x") + "|" + entry("y")},
		{"relay.hint_key", c.Relay.HintKey, "as it is"},
	} {
		if x.got != x.want {
			t.Errorf("%s = %q, want %q", x.name, x.got, x.want)
		}
	}
}

// A secret that cannot be read stops the commands that need it, with the setting and the
// file in the error, and no others.
func TestSecrets_ThatCannotBeRead(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range (&config{}).secrets() {
		at := slices.IndexFunc(settings, func(x setting) bool { return x.Section == s.section && x.Name == s.name })
		if at < 0 {
			t.Fatalf("%s.%s is no setting", s.section.name(), s.name)
		}
		for what, value := range map[string]string{missing: "file:" + missing, empty: "file:" + empty, "NOT_SET_ANYWHERE": "env:NOT_SET_ANYWHERE"} {
			_, err := testConfig(t, "", map[string]string{settings[at].env(): value})
			if err == nil || !strings.Contains(err.Error(), settings[at].key()) || !strings.Contains(err.Error(), what) {
				t.Errorf("%s=%s: %v, want an error with both names", settings[at].key(), value, err)
			}
		}
		cmd := &cobra.Command{}
		addFlags(cmd, sectionLog)
		c, err := loadConfigFrom("", func(k string) (string, bool) { return "file:" + missing, k == settings[at].env() }, cmd.Flags())
		if err != nil {
			t.Errorf("%s of a command that does not use it: %v", settings[at].key(), err)
			continue
		}
		for _, got := range c.secrets() {
			if got.value != nil && *got.value != "" || got.entries != nil && len(*got.entries) > 0 {
				t.Errorf("%s.%s is left as its place", got.section.name(), got.name)
			}
		}
	}
}

// Every secret setting is read by the one mechanism: here, or in package notify.
func TestSecrets_AreAllOfThem(t *testing.T) {
	t.Parallel()
	known := []string{"notifications.targets", "notifications.webhook_secrets", "react.targets", "react.webhook_secrets"}
	for _, s := range (&config{}).secrets() {
		known = append(known, s.section.name()+"."+s.name)
	}
	for _, s := range settings {
		if s.Secret != slices.Contains(known, s.key()) {
			t.Errorf("%s: secret %t, revealed %t", s.key(), s.Secret, !s.Secret)
		}
	}
}
