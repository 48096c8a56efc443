// Command clouds runs a command beside servers that speak the protocols of object stores: of
// S3 (versitygw, which verifies signatures), of Google Cloud Storage (fake-gcs-server, which
// accepts everybody) and of Azure Blob Storage (Azurite, which verifies signatures).
//
//	go run ./test/clouds go test -tags cloud ./dlq/archive/cloud
//
// The command has the credentials in its environment, and the URL of a bucket in CLOUD_S3,
// CLOUD_GS and CLOUD_AZBLOB: BUCKET in it stands for the name of one of the buckets.
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/ports"
)

const (
	s3      = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
	gcs     = "github.com/fsouza/fake-gcs-server@v1.56.1"
	azurite = "azurite@3.37.0"
	// azuriteBefore is the day that selects the versions of what Azurite depends on.
	azuriteBefore = "2026-11-25"
	azuriteDir    = ".peers/" + azurite

	key, secret = "AKIDTEST", "test-secret"
	// The account of every Azurite, as its documentation contains it.
	account    = "devstoreaccount1"
	accountKey = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

	// startTimeout bounds the start of a server, on a busy machine.
	startTimeout = 3 * time.Minute
)

// buckets are the names of the buckets: one for each package that uses them.
var buckets = []string{"contract", "claims"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		os.Exit(1) // the command has reported it
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "clouds:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command []string) error {
	if len(command) == 0 {
		return errors.New("name the command to run")
	}
	if err := install(ctx); err != nil {
		return fmt.Errorf("install the servers: %w", err)
	}
	dir, err := os.MkdirTemp("", "clouds-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	addrs, err := ports.Take(3)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var servers []*server
	defer func() {
		cancel()
		for _, s := range servers {
			<-s.ended
		}
	}()
	for _, name := range buckets { // of versitygw
		if err := os.MkdirAll(filepath.Join(dir, "s3", name), 0o755); err != nil {
			return err
		}
	}
	metadata := filepath.Join(dir, "metadata")
	if err := os.Mkdir(metadata, 0o755); err != nil {
		return err
	}
	_, gcsPort, _ := net.SplitHostPort(addrs[1])
	_, azuritePort, _ := net.SplitHostPort(addrs[2])
	for i, args := range [][]string{
		{"./test/tool", s3, "--port", addrs[0], "--access", key, "--secret", secret, "--keep-alive", "posix", "--sidecar", metadata, filepath.Join(dir, "s3")},
		{"./test/tool", gcs, "-scheme", "http", "-host", "127.0.0.1", "-port", gcsPort, "-public-host", "127.0.0.1", "-backend", "memory"},
		{filepath.Join(azuriteDir, "node_modules/.bin/azurite-blob"), "--blobHost", "127.0.0.1", "--blobPort", azuritePort, "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"},
	} {
		s, err := start(ctx, args, filepath.Join(dir, fmt.Sprintf("log-%d", i)))
		if err != nil {
			return err
		}
		servers = append(servers, s)
	}
	for i, s := range servers {
		if err := s.await(ctx, addrs[i]); err != nil {
			return err
		}
	}
	for _, name := range buckets {
		if err := errors.Join(makeGCS(ctx, addrs[1], name), makeAzure(ctx, addrs[2], name)); err != nil {
			return err
		}
	}
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(),
		"CLOUD_S3=s3://BUCKET?region=us-east-1&use_path_style=true&endpoint=http://"+addrs[0],
		"AWS_ACCESS_KEY_ID="+key, "AWS_SECRET_ACCESS_KEY="+secret, "AWS_SESSION_TOKEN=", "AWS_PROFILE=",
		"AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull, "AWS_EC2_METADATA_DISABLED=true",
		"CLOUD_GS=gs://BUCKET", "STORAGE_EMULATOR_HOST="+addrs[1],
		"CLOUD_AZBLOB=azblob://BUCKET?localemu=true&protocol=http&domain="+addrs[2], "AZURE_STORAGE_ACCOUNT="+account, "AZURE_STORAGE_KEY="+accountKey,
	)
	return c.Run()
}

// install gets the servers, which takes minutes the first time.
func install(ctx context.Context) error {
	steps := [][]string{{"./test/need", "npm"}, {"./test/tool", s3, "--version"}, {"./test/tool", gcs, "-h"}}
	if _, err := os.Stat(filepath.Join(azuriteDir, "node_modules/.bin/azurite-blob")); err != nil {
		steps = append(steps, []string{
			"./test/retry", "npm install " + azurite, "npm", "install", "--prefix", azuriteDir, "--before", azuriteBefore,
			"--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", "--loglevel=error", azurite,
		})
	}
	for _, args := range steps {
		c := exec.CommandContext(ctx, args[0], args[1:]...)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out) // no ExitError: the command has not run
		}
	}
	return nil
}

// server is a running server.
type server struct {
	name, log string
	ended     chan struct{} // closed when the process has ended
}

// start starts a server, which is killed when ctx ends.
func start(ctx context.Context, args []string, logPath string) (*server, error) {
	log, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", strings.Join(args, " "), err)
	}
	s := &server{name: strings.Join(args, " "), log: logPath, ended: make(chan struct{})}
	go func() {
		_ = c.Wait() // the log contains the reason
		close(s.ended)
	}()
	return s, nil
}

// await returns when the server accepts a connection.
func (s *server) await(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			return c.Close()
		}
		select {
		case <-s.ended:
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
			continue
		}
		log, err := os.ReadFile(s.log)
		return errors.Join(err, fmt.Errorf("%s does not accept connections; its log:\n%s", s.name, log))
	}
}

// makeGCS makes a bucket of Google Cloud Storage.
func makeGCS(ctx context.Context, addr, name string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/storage/v1/b?project=test", strings.NewReader(`{"name":"`+name+`"}`))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	return do(r, http.StatusOK)
}

// makeAzure makes a container, with the signature Shared Key of Azure Storage.
func makeAzure(ctx context.Context, addr, name string) error {
	path := "/" + account + "/" + name
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+addr+path+"?restype=container", http.NoBody)
	if err != nil {
		return err
	}
	secret, err := base64.StdEncoding.DecodeString(accountKey)
	if err != nil {
		return err
	}
	const version = "2024-11-04"
	date := time.Now().UTC().Format(http.TimeFormat)
	mac := hmac.New(sha256.New, secret)
	// The method, eleven empty headers, the headers x-ms-… and the resource.
	fmt.Fprintf(mac, "PUT\n%sx-ms-date:%s\nx-ms-version:%s\n/%s%s\nrestype:container", strings.Repeat("\n", 11), date, version, account, path)
	r.Header.Set("X-Ms-Date", date)
	r.Header.Set("X-Ms-Version", version)
	r.Header.Set("Authorization", "SharedKey "+account+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return do(r, http.StatusCreated)
}

func do(r *http.Request, want int) error {
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != want {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 2000))
		return fmt.Errorf("%s %s: %s: %s", r.Method, r.URL, resp.Status, text)
	}
	return nil
}
