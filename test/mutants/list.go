package main

import "slices"

// mutant is a one-line break of the code that the tests must notice.
type mutant struct {
	name string
	file string
	// old is what stands in file, once; new is what takes its place.
	old, new string
	// pkg and run are the test that must go red, in an environment.
	pkg, run string
	env      []string
}

const simulation = "./test/sim"

// seeds lets the first so many seeds of the simulation run, until one is red.
func seeds(m mutant) mutant {
	m.pkg, m.run, m.env = simulation, "^TestSeeds$", []string{"SIM_FIRST=1", "SIM_SEEDS=60"}
	return m
}

// scenario lets one test of the simulation run.
func scenario(run string, m mutant) mutant {
	m.pkg, m.run = simulation, "^"+run+"$"
	return m
}

// unit lets one test of the relay run.
func unit(run string, m mutant) mutant {
	m.pkg, m.run = "./relay", "^"+run+"$"
	return m
}

// sharing lets one test of package relay/share run.
func sharing(run string, m mutant) mutant {
	m.pkg, m.run = "./relay/share", "^"+run+"$"
	return m
}

// mutants are all breaks. They are small, and each breaks a promise.
var mutants = slices.Concat(relayMutants, dlqMutants, serviceMutants, readerMutants, securityMutants, internalMutants, verifyMutants, nodeMutants, brokerMutants, lateMutants, clockMutants, tailMutants)
