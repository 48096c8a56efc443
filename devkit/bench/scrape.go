package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

// QueriesMetric counts the requests of a process to the database.
const QueriesMetric = app.RequestsMetric

// Scrape reads a counter or gauge from a process's /metrics: the sum over its labels,
// or over those with one of the given values.
func Scrape(ctx context.Context, url, name string, values ...string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("read metrics of %s: %w", url, err)
	}
	var sum float64
	for _, m := range families[name].GetMetric() {
		has := func(v string) bool {
			return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == v })
		}
		if slices.ContainsFunc(values, func(v string) bool { return !has(v) }) {
			continue
		}
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum, nil
}

// Profile writes a processor profile of a process over a duration to a file; with no
// duration, one of its allocations since its start.
func Profile(ctx context.Context, url, file string, d time.Duration) error {
	what := "allocs"
	if d > 0 {
		what = fmt.Sprintf("profile?seconds=%d", max(1, int(d.Seconds())))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/debug/pprof/"+what, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("take a profile: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("take a profile: %s", resp.Status)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, resp.Body)
	return errors.Join(err, f.Close())
}
