package conformance

import (
	"slices"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
)

// startFake starts a scyllafake node of a release, the default one if it is empty, on a free
// port.
func startFake(t *testing.T, release string) *scyllafake.Server {
	t.Helper()
	s, err := scyllafake.Start(scyllafake.Config{Addr: "127.0.0.1:0", Version: release})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// releases are the releases that the tests start, the default one first.
var releases = []string{"2026.1", "5.1"}

// differs reports whether the answer of a release differs from Cassandra's: the answers of all
// releases do, or only the answer of the release that begins the reason.
func (s *step) differs(release string) bool {
	of, _, _ := strings.Cut(s.reason, " ")
	return s.reason != "" && (of == release || !slices.Contains(releases, of))
}

// The releases answer every statement as Cassandra did or, according to the corpus, as
// ScyllaDB does.
func TestScyllafake_AnswersAsRecorded(t *testing.T) {
	t.Parallel()
	for _, release := range releases {
		addr := startFake(t, release).Addr()
		for _, f := range readCorpus(t) {
			recorded := readRecording(t, f)
			t.Run(release+"/"+f.name, func(t *testing.T) {
				t.Parallel()
				for _, c := range f.cases {
					runCase(t, addr, c, func(i int, answer []string) {
						compare(t, release, c.steps[i], recorded[key(c, i)], answer)
					})
				}
			})
		}
	}
}

// compare holds an answer of scyllafake to Cassandra's, or to ScyllaDB's where that differs.
func compare(t *testing.T, release string, s *step, cassandra, got []string) {
	t.Helper()
	if cassandra == nil {
		t.Errorf("%s: no answer is recorded for %s; record it with -tags peers -update", s.where, s.text)
		return
	}
	want, whose := cassandra, "Cassandra"
	if s.differs(release) {
		want, whose = s.scylla, "ScyllaDB"
		if slices.Equal(want, cassandra) {
			t.Errorf("%s: %s\nScyllaDB should differ (%s), but both answer\n%s", s.where, s.text, s.reason, indent(want))
		}
	}
	if !slices.Equal(want, got) {
		t.Errorf("%s: %s\nscyllafake answers\n%s\n%s answers\n%s", s.where, s.text, indent(got), whose, indent(want))
	}
}
