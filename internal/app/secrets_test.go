package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
)

// loadSettings returns the settings of a command of the sections, of a file or an environment.
func loadSettings(t *testing.T, env map[string]string, sections ...string) (map[string]any, string, error) {
	t.Helper()
	cmd := &cobra.Command{}
	AddFlags(cmd, sections...)
	_, all, err := loadFrom("", func(k string) (string, bool) { v, ok := env[k]; return v, ok }, cmd.Flags())
	values := make(map[string]any)
	for _, f := range all {
		values[f.Key] = f.Value()
	}
	return values, fmt.Sprint(all.Document()), err
}

// Each secret may refer to a file or an environment variable. Its value is the text of that,
// and is not printed. An error names the setting and the reference.
func TestSecrets_EachMayBeAReference(t *testing.T) {
	dir := t.TempDir()
	looks := regexp.MustCompile(`(password|tokens?|secrets?|hints\.key)$`)
	secrets := 0
	for _, f := range Settings {
		if !f.Secret {
			if looks.MatchString(f.Key) && f.Env() != "" {
				t.Errorf("%s: is it secret? Then it needs the tag", f.Key)
			}
			continue
		}
		secrets++
		t.Run(f.Key, func(t *testing.T) {
			file := filepath.Join(dir, f.Key)
			value, want := func(ref string) string { return ref }, any("canary one")
			content := " canary one\n"
			if _, list := f.Value().([]string); list {
				value = func(ref string) string { return "plain," + ref + ",a-b=" + ref }
				content, want = "canary one", []string{"plain", "canary one", "a-b=canary one"}
			}
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("TEST_SECRET", content)
			for _, ref := range []string{"file:" + file, "env:TEST_SECRET"} {
				got, printed, err := loadSettings(t, map[string]string{f.Env(): value(ref)})
				if err != nil || fmt.Sprint(got[f.Key]) != fmt.Sprint(want) {
					t.Errorf("%s = %q, %v, want %q", ref, got[f.Key], err, want)
				}
				if strings.Contains(printed, "canary") || strings.Contains(printed, file) {
					t.Errorf("config print: %s", printed)
				}
			}
			t.Setenv("TEST_SECRET", "")
			for _, ref := range []string{"file:" + file + ".none", "env:TEST_SECRET"} {
				_, _, err := loadSettings(t, map[string]string{f.Env(): value(ref)})
				_, where, _ := strings.Cut(ref, ":")
				if err == nil || !strings.Contains(err.Error(), f.Key) || !strings.Contains(err.Error(), where) {
					t.Errorf("%s: error = %v, want it to name %s", ref, err, f.Key)
				}
			}
		})
	}
	if secrets < 10 {
		t.Errorf("found %d secrets", secrets)
	}
}

// A file without a name in a list has an entry in each line. An empty file is an error.
func TestSecrets_Lines(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	for content, want := range map[string]string{"a:viewer:1\n\n  b:admin:2  \n": "[a:viewer:1 b:admin:2]", " \n": ""} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, _, err := loadSettings(t, map[string]string{"OUTBOX_ADMIN_TOKENS": "file:" + file})
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "is empty") {
				t.Errorf("an empty file: %v", err)
			}
		} else if err != nil || fmt.Sprint(got["admin.tokens"]) != want {
			t.Errorf("admin.tokens = %v, %v, want %s", got["admin.tokens"], err, want)
		}
	}
}

// A secret with an equals sign in it is no reference.
func TestSecrets_Literals(t *testing.T) {
	t.Parallel()
	for _, literal := range []string{"a=file:/no/such/file", "File:/x", "x file:/x", "hush"} {
		got, _, err := loadSettings(t, map[string]string{"OUTBOX_SCYLLA_PASSWORD": literal})
		if err != nil || got["scylla.password"] != literal {
			t.Errorf("%s = %v, %v", literal, got["scylla.password"], err)
		}
	}
}

// A command needs its own secrets only.
func TestSecrets_OfOtherCommands(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		setting  string
		sections []string
		needed   bool
	}{
		{"OUTBOX_HINTS_KEY", OrdersSections, true},
		{"OUTBOX_HINTS_KEY", MessagesSections, true},
		{"OUTBOX_HINTS_KEY", RelaySections, true},
		{"OUTBOX_HINTS_KEY", SubscriptionsSections, false},
		{"OUTBOX_SUBSCRIPTIONS_TARGETS", SubscriptionsSections, true},
		{"OUTBOX_NOTIFICATIONS_TARGETS", RelaySections, true},
		{"OUTBOX_NOTIFICATIONS_TARGETS", OrdersSections, false},
		{"OUTBOX_HTTP_TOKENS", OrdersSections, true},
		{"OUTBOX_HTTP_TOKENS", MessagesSections, true},
		{"OUTBOX_ADMIN_TOKENS", OrdersSections, false},
	} {
		_, _, err := loadSettings(t, map[string]string{tt.setting: "file:/no/such/file"}, tt.sections...)
		if (err != nil) != tt.needed {
			t.Errorf("%s of %s: error = %v, want %t", tt.setting, tt.sections, err, tt.needed)
		}
	}
}

// A build that does not contain the object store of the archive reports it for the commands
// that use the archive, before it is needed. A build that contains it does not.
func TestArchive_OfAnotherBuildIsRefused(t *testing.T) {
	t.Parallel()
	archive.Register("contained", func(context.Context, string) (archive.Bucket, error) { return nil, errors.ErrUnsupported })
	for _, tt := range []struct {
		archive  string
		sections []string
		refused  bool
	}{
		{"absent://bucket?key=canary", nil, true},
		{"absent://bucket?key=canary", MessagesSections, true},
		{"absent://bucket?key=canary", OrdersSections, false},
		{"absent://bucket?key=canary", []string{SectionKafka}, false},
		{"contained://bucket", MessagesSections, false},
		{"file:///var/lib/outbox", MessagesSections, false},
		{"/var/lib/outbox", MessagesSections, false},
		{"", MessagesSections, false},
	} {
		_, _, err := loadSettings(t, map[string]string{"OUTBOX_ARCHIVE_URL": tt.archive}, tt.sections...)
		if (err != nil) != tt.refused {
			t.Errorf("%s for %s: error = %v, want %t", tt.archive, tt.sections, err, tt.refused)
		}
		if err == nil {
			continue
		}
		for _, want := range []string{"archive.url", "absent://", "outbox-cloud"} {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: error = %v, want %q", tt.archive, err, want)
			}
		}
	}
}
