// Package cloudtest finds the servers that test/clouds starts.
package cloudtest

import (
	"os"
	"strings"
	"testing"
)

// URL returns the URL of a bucket of a service, which is s3, gs or azblob. Without its server it
// skips the test; in CI the test fails.
func URL(t testing.TB, service, bucket string) string {
	t.Helper()
	url := os.Getenv("CLOUD_" + strings.ToUpper(service))
	if url == "" {
		const missing = "make cloud-check runs this test beside servers of the protocols of S3, Google Cloud Storage and Azure"
		if os.Getenv("CI") == "true" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	return strings.Replace(url, "BUCKET", bucket, 1)
}
