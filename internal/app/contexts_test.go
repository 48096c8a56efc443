package app

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A context is a file in the user's folder. A wrong name is an error with the names there are.
func TestContext_NamesTheFile(t *testing.T) {
	t.Parallel()
	config, home := t.TempDir(), t.TempDir()
	write := func(parts ...string) string {
		t.Helper()
		file := filepath.Join(parts...)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	prod, test := write(config, "outbox", "prod.yml"), write(config, "outbox", "test.yml")
	write(config, "outbox", "notes.txt")
	mine := write(home, ".config", "outbox", "mine.yml")
	xdg := "XDG_CONFIG_HOME=" + config
	for _, tt := range []struct {
		env, args  string
		want, fail string
	}{
		{xdg, "", "", ""},
		{xdg, "--context prod", prod, ""},
		{xdg + " OUTBOX_CONTEXT=test", "", test, ""},
		{xdg + " OUTBOX_CONTEXT=test", "--context prod", prod, ""},
		{xdg + " OUTBOX_CONTEXT=test", "--config /x.yaml", "/x.yaml", ""},
		{"HOME=" + home, "--context mine", mine, ""},
		{"XDG_CONFIG_HOME=relative HOME=" + home, "--context mine", mine, ""},
		{xdg, "--context prod --config /x.yaml", "", "cannot be combined"},
		{xdg, "--context prd", "", filepath.Join(config, "outbox", "prd.yml") + "; the contexts are prod, test"},
		{"HOME=" + config, "--context prod", "", "there are no contexts"},
		{xdg, "--context ../prod", "", "use the name of a file in"},
	} {
		env := make(map[string]string)
		for _, pair := range strings.Fields(tt.env) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		cmd := &cobra.Command{}
		AddFlags(cmd)
		if err := cmd.ParseFlags(strings.Fields(tt.args)); err != nil {
			t.Fatal(err)
		}
		got, byContext, err := ConfigFile(func(k string) (string, bool) { v, ok := env[k]; return v, ok }, cmd.Flags())
		if got != tt.want || (err == nil) != (tt.fail == "") || err != nil && !strings.Contains(err.Error(), tt.fail) {
			t.Errorf("%s outbox %s: %q, %v, want %q %q", tt.env, tt.args, got, err, tt.want, tt.fail)
		}
		if want := got != "" && got != "/x.yaml"; byContext != want {
			t.Errorf("%s outbox %s: by a context %t, want %t", tt.env, tt.args, byContext, want)
		}
	}
	if got := strangers([]string{"OUTBOX_CONTEXT=prod", "OUTBOX_NO=1"}); !slices.Equal(got, []string{"OUTBOX_NO"}) {
		t.Errorf("strangers() = %q", got)
	}
}

// A secret in a context that others can read is reported, without its value.
func TestContext_WarnsOfReadableSecrets(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text  string
		mode  os.FileMode
		warns bool
	}{
		{"api: {admin_url: 'https://a', token: canary}", 0o644, true},
		{"api: {token: canary}", 0o640, true},
		{"admin: {tokens: ['file:/x', canary]}", 0o604, true},
		{"api: {token: canary}", 0o600, false},
		{"api: {admin_url: 'https://a', token: 'file:/x'}", 0o644, false},
		{"notifications: {targets: ['ops=file:/x']}", 0o644, false},
	} {
		file := filepath.Join(t.TempDir(), "prod.yml")
		if err := os.WriteFile(file, []byte(tt.text), tt.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, tt.mode); err != nil { // whatever the umask is
			t.Fatal(err)
		}
		var out bytes.Buffer
		warnOfReaders(slog.New(slog.NewTextHandler(&out, nil)), file)
		if got := out.Len() > 0; got != tt.warns || strings.Contains(out.String(), "canary") || tt.warns && !strings.Contains(out.String(), "tokens") && !strings.Contains(out.String(), "api.token") {
			t.Errorf("%s with mode %o: %q, want a warning: %t", tt.text, tt.mode, out.String(), tt.warns)
		}
	}
}
