package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is a one-line change of the code that a test must detect.
type mutant struct {
	name string
	file string
	// old occurs in file once; new replaces it.
	old, new string
	// pkg and run select the test that must fail, with an environment.
	pkg, run string
	env      []string
}

const simulation = "./test/sim"

// seeds runs the first seeds of the simulation until one fails.
func seeds(m mutant) mutant {
	m.pkg, m.run, m.env = simulation, "^TestSeeds$", []string{"SIM_FIRST=1", "SIM_SEEDS=60"}
	return m
}

// scenario runs one test of the simulation.
func scenario(run string, m mutant) mutant {
	m.pkg, m.run = simulation, "^"+run+"$"
	return m
}

// unit runs one test of the relay, in the package that declares it.
func unit(run string, m mutant) mutant {
	m.run = "^" + run + "$"
	return m
}

// locate sets the package of a unit test: the one below relay that declares it.
func (m *mutant) locate(root string) error {
	if m.pkg != "" {
		return nil
	}
	decl := []byte("\nfunc " + strings.Trim(m.run, "^$") + "(")
	err := filepath.WalkDir(filepath.Join(root, "relay"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(text, decl) {
			dir, _ := filepath.Rel(root, filepath.Dir(path)) // both are relative or absolute
			m.pkg = "./" + filepath.ToSlash(dir)
			return fs.SkipAll
		}
		return err
	})
	if err == nil && m.pkg == "" {
		err = fmt.Errorf("no package of the relay declares %s", m.run)
	}
	return err
}

// sharing runs one test of package relay/share.
func sharing(run string, m mutant) mutant {
	m.pkg, m.run = "./relay/share", "^"+run+"$"
	return m
}

// mutants are all breaks. They are small, and each breaks a promise.
var mutants = slices.Concat(relayMutants, dlqMutants, serviceMutants, readerMutants, securityMutants, internalMutants, verifyMutants, nodeMutants, brokerMutants, lateMutants, clockMutants, tailMutants, inboxMutants, storeMutants, subscriptionMutants, pushMutants, subscriptionAPIMutants, subscribingMutants, releaseMutants, registryMutants)
