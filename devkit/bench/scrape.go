package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

// QueriesMetric counts the requests of a process to the database.
const QueriesMetric = app.RequestsMetric

// Metrics are the metrics of a process at one moment, by name.
type Metrics map[string]*dto.MetricFamily

// ScrapeAll reads a process's /metrics.
func ScrapeAll(ctx context.Context, url string) (Metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read metrics of %s: %w", url, err)
	}
	return families, nil
}

// Scrape reads a counter or gauge from a process's /metrics, as [Metrics.Sum] does.
func Scrape(ctx context.Context, url, name string, values ...string) (float64, error) {
	m, err := ScrapeAll(ctx, url)
	return m.Sum(name, values...), err
}

// Sum returns a counter or gauge: the sum over its labels, or over those with one of the
// given values.
func (m Metrics) Sum(name string, values ...string) float64 {
	var sum float64
	for _, m := range m[name].GetMetric() {
		has := func(v string) bool {
			return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == v })
		}
		if slices.ContainsFunc(values, func(v string) bool { return !has(v) }) {
			continue
		}
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
}

// Profile writes a processor profile of a process over a duration to a file; with no
// duration, one of its allocations since its start. It creates the folder of the file.
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
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, resp.Body)
	return errors.Join(err, f.Close())
}
