package harness

import (
	"net/http"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Answered returns the number of requests that the order API has answered since
// its start, by the metrics at its admin address; 0 if that is unreachable.
func Answered(admin string) (n int) {
	resp, err := http.Get("http://" + admin + "/metrics") //nolint:noctx // the test ends with the process
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return 0
	}
	for _, m := range families["outbox_orders_http_request_duration_seconds"].GetMetric() {
		n += int(m.GetHistogram().GetSampleCount())
	}
	return n
}
