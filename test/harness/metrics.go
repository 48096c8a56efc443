package harness

import (
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Answered returns the number of requests that the order API has answered since
// its start, by the metrics at its admin address; 0 if that is unreachable.
func Answered(admin string) (n int) {
	for _, m := range metrics(admin)["outbox_http_request_duration_seconds"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "api" && l.GetValue() == "orders" {
				n += int(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return n
}

// Version returns the version of the process with an admin address; empty if that is
// unreachable.
func Version(admin string) string {
	for _, m := range metrics(admin)["outbox_build_info"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "version" {
				return l.GetValue()
			}
		}
	}
	return ""
}

// metrics returns the metrics at an admin address; none if that is unreachable.
func metrics(admin string) map[string]*dto.MetricFamily {
	resp, err := http.Get("http://" + admin + "/metrics") //nolint:noctx // the test ends with the process
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil
	}
	return families
}
