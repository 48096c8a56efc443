package app

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kafka.schema_registry is a URL, or a file with one. https uses
// kafka.tls_ca, and the user and password are sent to this URL alone. No error has them.
func TestKafka_SchemaRegistry(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed, with %q", r.Header.Get("Authorization"))
	}))
	t.Cleanup(other.Close)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case user != "ada" || password != "hunter2":
			http.Error(w, "who?", http.StatusUnauthorized)
		case strings.HasPrefix(r.URL.Path, "/apis/ccompat/v7/"):
			_, _ = w.Write([]byte(`["AVRO"]`))
		default:
			http.Redirect(w, r, other.URL, http.StatusFound)
		}
	}))
	t.Cleanup(srv.Close)
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	ca := write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})))
	address := strings.Replace(srv.URL, "https://", "https://ada:hunter2@", 1)
	tls := "kafka: {tls: true, tls_ca: " + ca + "}\n"
	for _, tt := range []struct{ yaml, setting, want string }{
		{tls, address + "/apis/ccompat/v7", ""},
		{tls, "file:" + write("url", address+"/apis/ccompat/v7/\n"), ""},
		{tls, strings.Replace(address, "hunter2", "hunter3", 1), "who?"},
		{tls, address, "the schema registry is unavailable"},
		{"", address, "certificate"},
		{tls, "ada:hunter2@registry", "kafka.schema_registry: use a URL"},
		{tls, "https://ada:hunter2@registry:x", "kafka.schema_registry: use a URL"},
		{tls, "ftp://ada:hunter2@registry", "kafka.schema_registry: use a URL"},
	} {
		c, err := parseConfig(t, tt.yaml, map[string]string{"OUTBOX_KAFKA_SCHEMA_REGISTRY": tt.setting})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Kafka.SchemaRegistry()
		if err == nil {
			if strings.Contains(r.URL(), "hunter") {
				t.Errorf("%s: URL() = %s", tt.setting, r.URL())
			}
			err = r.Ping(t.Context())
		}
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter")) {
			t.Errorf("%s: error = %v, want %q", tt.setting, err, tt.want)
		}
	}
	c, err := parseConfig(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.Kafka.SchemaRegistry(); r != nil || err != nil {
		t.Errorf("without the setting: %v, %v", r, err)
	}
}
