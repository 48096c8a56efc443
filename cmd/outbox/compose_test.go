package main

import (
	"os"
	"slices"
	"testing"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// composeFile is the part of docker-compose.yml that the tests read.
type composeFile struct {
	Services map[string]struct {
		Command     []string          `yaml:"command"`
		Environment map[string]string `yaml:"environment"`
		Ports       []string          `yaml:"ports"`
	} `yaml:"services"`
}

func readCompose(t *testing.T) composeFile {
	t.Helper()
	text, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var f composeFile
	if err := yaml.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// composeConfig is the configuration of one of the file's services.
func composeConfig(t *testing.T, name string) *config {
	t.Helper()
	service := readCompose(t).Services[name]
	cmd := &cobra.Command{}
	addFlags(cmd)
	c, err := loadConfigFrom("", func(k string) (string, bool) { v, ok := service.Environment[k]; return v, ok }, cmd.Flags())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return c
}

// The order API of docker-compose.yml has no tokens and listens beyond the loopback of
// its container, so it must refuse the host names of pages that use DNS rebinding.
func TestCompose_OrdersRefuseForeignHosts(t *testing.T) {
	t.Parallel()
	c := composeConfig(t, "orders")
	if len(c.HTTP.Tokens) > 0 {
		t.Fatal("docker-compose.yml has tokens; this test is about an API without")
	}
	hosts, err := c.HTTP.hosts()
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"127.0.0.1:8080": true, "localhost:8080": true, "orders:8080": true, "172.18.0.4:8080": true,
		"evil.example:8080": false, "relay:8080": false, "0.0.0.0.evil.example": false,
	} {
		if got := hosts.Allow(host); got != want {
			t.Errorf("Allow(%q) = %t, want %t", host, got, want)
		}
	}
}

// Every variable of docker-compose.yml that begins as a setting's is a setting's.
func TestCompose_NamesSettings(t *testing.T) {
	t.Parallel()
	for name, service := range readCompose(t).Services {
		for variable := range service.Environment {
			if slices.Contains(strangers([]string{variable + "="}), variable) {
				t.Errorf("%s: %s is the variable of no setting", name, variable)
			}
		}
	}
}
