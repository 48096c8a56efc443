package peers

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Need skips the test where Java 17 or Maven is missing, saying which. Where
// the environment has CI=true the test fails instead.
func Need(t testing.TB) {
	t.Helper()
	missing := missing()
	if len(missing) == 0 {
		return
	}
	const format = "missing: %s; install what is missing (on Debian: apt-get install openjdk-17-jdk-headless maven) to compare with the real servers"
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, strings.Join(missing, ", "))
	}
	t.Skipf(format, strings.Join(missing, ", "))
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

// missing lists the requirements of the peers that this machine lacks.
func missing() []string {
	var list []string
	out, err := exec.Command("java", "-version").CombinedOutput()
	m := javaVersion.FindSubmatch(out)
	if err != nil || m == nil {
		list = append(list, "java (17 or later)")
	} else if v, _ := strconv.Atoi(string(m[1])); v < 17 {
		list = append(list, "java 17 (this is "+strconv.Itoa(v)+")")
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		list = append(list, "mvn")
	}
	return list
}

// StartCassandra starts a node for the length of the test, or skips the test as Need does.
func StartCassandra(t testing.TB, cfg Config) *Process { return start(t, cfg, Cassandra) }

// StartKafka starts a broker for the length of the test, or skips the test as Need does.
func StartKafka(t testing.TB, cfg Config) *Process { return start(t, cfg, Kafka) }

func start(t testing.TB, cfg Config, peer func(context.Context, Config) (*Process, error)) *Process {
	t.Helper()
	Need(t)
	p, err := peer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}
