package harness

import (
	"net/http"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Answered is how many requests the order API has answered since it started, by the
// metrics at its admin address. One that cannot be asked has answered none.
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
