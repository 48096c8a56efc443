// Grafana's schema of dashboards, for make alerts: go run -modfile=test/grafana.mod.
module github.com/scylla-outbox/scylla-outbox/test/grafana

go 1.26.0

require github.com/grafana/grafana-foundation-sdk/go v0.0.22
