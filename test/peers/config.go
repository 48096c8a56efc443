package peers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Defaults of Config.
const (
	DefaultHeap         = "1g"
	DefaultStartTimeout = 10 * time.Minute
)

// Config configures a peer. The zero value starts a fresh one in a temporary
// directory on a free port.
type Config struct {
	// Dir contains the peer's data, configuration and log. A peer that starts on
	// the Dir of an earlier one has its data. Empty means a new temporary
	// directory, which Stop and Kill remove.
	Dir string
	// Port is the port clients connect to. 0 picks a free one.
	Port int
	// Heap is the JVM's heap size. Default DefaultHeap.
	Heap string
	// StartTimeout bounds the time until the peer accepts connections, without the
	// download of its jars. Default DefaultStartTimeout.
	StartTimeout time.Duration
	// Cache is the folder of the jars. Default .peers at the module's root.
	Cache string
	// Secure makes a broker require TLS and SASL of its clients. Cassandra ignores it.
	Secure *Security
}

// Security configures the listener of a secure broker. Its mechanisms are PLAIN,
// SCRAM-SHA-256, SCRAM-SHA-512, and OAUTHBEARER with unsecured tokens
// (https://kafka.apache.org/documentation/#security_sasl_oauthbearer).
type Security struct {
	// Keystore is a PEM file with the broker's key (PKCS #8) and certificate, Truststore
	// one with the certificate that has signed those of its clients, which it requires.
	Keystore, Truststore string
	// User and Password are the account of PLAIN and SCRAM.
	User, Password string
	// Others are further users of PLAIN, with the same password. With them the broker has the
	// authorizer of Kafka, which permits User everything and the others what ACLs permit.
	Others []string
}

func (c Config) withDefaults() (Config, error) {
	if c.Heap == "" {
		c.Heap = DefaultHeap
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = DefaultStartTimeout
	}
	if c.Cache == "" {
		root, err := moduleRoot()
		if err != nil {
			return c, err
		}
		c.Cache = filepath.Join(root, ".peers")
	}
	return c, nil
}

// moduleRoot returns the nearest directory above the working directory with a
// go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no go.mod above the working directory")
		}
		dir = parent
	}
}
