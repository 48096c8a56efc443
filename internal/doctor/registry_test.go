package doctor

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The doctor reports whether the schema registry answers and accepts the credentials, without
// them, and nothing if there is none.
func TestDoctor_SchemaRegistry(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); r.URL.Path != "/schemas/types" || user != "user" || password != "hunter2" {
			http.Error(w, "who?", http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`["AVRO"]`))
	}))
	t.Cleanup(srv.Close)
	with := func(user string) string { return strings.Replace(srv.URL, "http://", "http://"+user+"@", 1) }
	check := func(url string) []Finding {
		t.Helper()
		c, err := parseConfig(t, "", map[string]string{"OUTBOX_KAFKA_SCHEMA_REGISTRY": url})
		if err != nil {
			t.Fatal(err)
		}
		return checkRegistry(t.Context(), c)
	}
	if got := check(""); len(got) != 0 {
		t.Errorf("without a registry: %+v", got)
	}
	find := func(url, detail string, ok bool) {
		t.Helper()
		got := check(url)
		if len(got) != 1 || got[0].OK != ok || !strings.Contains(got[0].Detail, detail) || !ok && !strings.Contains(got[0].Fix, "kafka.schema_registry") {
			t.Errorf("%+v, want %t with %q", got, ok, detail)
		}
		for _, f := range got {
			if strings.Contains(f.Detail+f.Fix, "hunter") {
				t.Errorf("a finding has the credentials: %+v", f)
			}
		}
	}
	find(with("user:hunter2"), srv.URL, true)
	find(with("user:hunter3"), "the schema registry is unavailable: who?", false)
	find("ftp://user:hunter2@127.0.0.1", "use a URL such as", false)
	srv.Close()
	find(with("user:hunter2"), "connection refused", false)
}
