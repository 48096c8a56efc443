package permissions

import (
	"testing"

	"github.com/gocql/gocql"
)

// connect connects the user without limits.
func connect(t *testing.T, addr string) *gocql.Session {
	t.Helper()
	cluster := gocql.NewCluster(addr)
	cluster.Authenticator = gocql.PasswordAuthenticator{Username: root, Password: "secret"}
	session, err := cluster.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	return session
}
