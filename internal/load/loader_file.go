package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// loadWorkers is the number of concurrent requests of a load.
const loadWorkers = 32

// NewLoader returns a loader for the order API at the URL api, without a slash at its end.
// It sends rate requests per second, or as many as the API answers if rate is 0. problem is
// called with the number of each rejected line, from one goroutine at a time.
func NewLoader(api string, rate float64, problem func(int, error)) *Loader {
	return &Loader{
		api:      api,
		client:   &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: loadWorkers}},
		workers:  loadWorkers,
		rate:     rate,
		Attempts: DefaultAttempts,
		Run:      uuid.New(),
		problem:  problem,
	}
}

// FinishedLines returns the number of processed lines.
func (l *Loader) FinishedLines() int64 {
	return l.Created.Load() + l.Cancelled.Load() + l.rejected.Load()
}

// LoadFile loads a file and shows the progress on p.
func (l *Loader) LoadFile(ctx context.Context, path string, p *cli.Progress) (LoadSummary, error) {
	f, err := os.Open(path)
	if err != nil {
		return LoadSummary{}, NoFile(err)
	}
	defer f.Close()
	r, err := Gunzip(f)
	if err != nil {
		return LoadSummary{}, fmt.Errorf("%s: %w", path, err)
	}
	began := time.Now()
	err = Showing(ctx, p, func() error { return l.Load(ctx, r) })
	if err != nil {
		if errors.Is(err, context.Canceled) {
			err = context.Cause(ctx)
		}
		err = fmt.Errorf("load %s: stopped after %d lines: %w", path, l.FinishedLines(), err)
	}
	return l.Summary(time.Since(began)), err
}

// Showing runs f and shows the progress on p until f returns.
func Showing(ctx context.Context, p *cli.Progress, f func() error) error {
	drawing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { p.Run(drawing); close(done) }()
	err := f()
	stop()
	<-done
	return err
}

// NoFile adds a hint on the format of the file.
func NoFile(err error) error {
	return cli.WithHint(err, "name a file of JSON lines; see outbox-dev load --help")
}
