# Bare `make` lists the targets. Everything a target needs beyond Go, it
# fetches through Go modules, Maven or apt, or says plainly what is missing.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT     := mvdan.cc/gofumpt@v0.12.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0
COMPOSESPEC := github.com/compose-spec/compose-go/v2/cmd@v2.16.2
GOTESTSUM   := gotest.tools/gotestsum@v1.13.0
HELM        := helm.sh/helm/v3/cmd/helm@v3.22.0
KUSTOMIZE   := sigs.k8s.io/kustomize/kustomize/v5@v5.8.1
KUBECONFORM := github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
GORELEASER  := github.com/goreleaser/goreleaser/v2@v2.15.2
CYCLONEDX   := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
COSIGN      := github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3
CRANE       := github.com/google/go-containerregistry/cmd/crane@v0.21.3

# gotest,FORMAT,PACKAGES,FLAGS is go test with a line for each package (pkgname) or test
# (testname), and what failed once more at the end. It does not vet: lint does.
gotest = ./test/tool $(GOTESTSUM) --format $(1) --format-hide-empty-pkg --hide-summary skipped $(2) -- -vet=off $(3)

# In CI up to three tests that failed run once more, each alone. A data race, a panic and
# a timeout end the tier. What passes then is named as FLAKY at the end (test/tiers).
again = $(if $(CI),--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-abort-on-data-race --rerun-fails-report="$${RERUNS:-/dev/null}")

# The modules of the repository; the root module is the product.
MODULE  := github.com/scylla-outbox/scylla-outbox
# The modules that other teams import.
LIBRARY := outbox
# The packages of product and devkit. The library is tested alone, with the gocql of its go.mod.
packages = go list ./... $(MODULE)/devkit/...

# No C compiler, except for the race detector: Pebble would compile zstd in C, and
# each test binary would be linked by it.
export CGO_ENABLED = 0
test-race nightly-race: export CGO_ENABLED = 1

# CI has little processor time and much memory: compilers, linters and tests collect little
# garbage. Tiers that measure processes of the product are left alone.
frugal := compile lint alerts test-library test-race test-go test-full test-virtual bench-smoke vuln cloud-check
$(frugal): export GOGC = 1600
$(frugal): export GOMEMLIMIT = 1GiB

# The nested modules have tags of their own.
VERSION ?= $(shell git describe --tags --always --dirty --match 'v*' 2>/dev/null || echo dev)
# Without the pages of grpc's own traces and html/template, which nobody reads here.
TAGS    := grpcnotrace
LDFLAGS := -s -w -X $(MODULE)/internal/cli.Version=$(VERSION)
FUZZTIME ?= 10000x
SEEDS ?= 20
FIRST ?= 1
SHORT ?= -short

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The first build is what a new user waits for: without debug information, and with compilers
# that collect little garbage, it takes a fifth less processor time.
.PHONY: dev
dev: ## run it all: embedded engines, schema, APIs, relay, sample orders (CONFIG=FILE adds tables, topics and rules of a relay)
	@GOGC=1600 GOMEMLIMIT=1GiB ./test/progress go build -C devkit -v -tags $(TAGS) -gcflags=all=-dwarf=false -ldflags '$(LDFLAGS)' -o $(CURDIR)/bin/ ./cmd/outbox-dev $(MODULE)/cmd/outbox
	@./test/foreground bin/outbox-dev run $(if $(CONFIG),--config $(CONFIG))

.PHONY: build
build: ## build bin/outbox and bin/outbox-dev
	go build -tags $(TAGS) -trimpath -ldflags '$(LDFLAGS)' -o bin/outbox ./cmd/outbox
	go build -C devkit -tags $(TAGS) -trimpath -ldflags '$(LDFLAGS)' -o $(CURDIR)/bin/outbox-dev ./cmd/outbox-dev

.PHONY: build-cloud
build-cloud: ## build bin/outbox-cloud, which archives to S3, Google Cloud and Azure too
	go build -tags cloud,$(TAGS) -trimpath -ldflags '$(LDFLAGS)' -o bin/outbox-cloud ./cmd/outbox

.PHONY: size
size: ## the production binary has at most 45,000,000 bytes
	./test/size '$(TAGS)' '$(LDFLAGS)'

# Five run side by side, since some wait most of the time. The longest come first, so that
# all lanes are full until the end.
TIERS := test-go test-virtual test-browser lint test-peers test-api test-fault fuzz-short test-library alerts vuln compose-check size

# The race detector compiles everything once more and makes the tests several times slower:
# make test-race runs beside make test, in a job of its own.

# What takes too long for each change: the sizes that -short leaves out, under the race
# detector too, more seeds, inputs and kills, what links the SDKs of three clouds, Helm, GoReleaser
# and cosign, which take 4, 8 and 5 minutes to compile, and a sample of mutants.
NIGHTLY := test-full nightly-race nightly-seeds nightly-kills nightly-fuzz nightly-api bench-smoke cloud-check kubernetes test-compose release-check nightly-mutants

# Tests need no debug information, which takes a tenth of the compilers' and a third of the
# linker's time.
.PHONY: test
test: export GOFLAGS := $(GOFLAGS) -gcflags=all=-dwarf=false -ldflags=-w
test: modules compile ## everything CI runs, and how long each part takes (needs a JDK 17, Maven, npm, Chromium, and Python 3 with venv)
	@go run ./test/tiers $(if $(findstring k,$(firstword -$(MAKEFLAGS))),-k) $(TIERS)

.PHONY: test-nightly
test-nightly: modules ## what takes too long for make test: full sizes, 3,000 seeds, 100 kills, a sample of mutants, the build with cloud SDKs
	@go run ./test/tiers -k -lanes 1 -limit 3h $(NIGHTLY)

.PHONY: nightly-race nightly-seeds nightly-kills nightly-fuzz nightly-api nightly-mutants
nightly-race: cc
	./test/detector $(call gotest,pkgname,--packages "$$($(packages) | grep -vE '/test/(sim|e2e|cluster)(/|$$)')",$(race) -timeout 3h)
nightly-seeds:
	APPEND_AGGREGATES=100 go test ./test/sim/...
	$(MAKE) sim SEEDS=3000
nightly-kills:
	FAULT_KILLS=100 $(MAKE) test-fault test-peers SHORT=
nightly-api:
	./test/api/run 100 operator viewer
nightly-fuzz:
	$(MAKE) fuzz-short FUZZTIME=1m
# Each day draws others. The share only rises; the tests of the mutants' own packages alone
# detect 48 % of a sample.
nightly-mutants:
	go run ./test/mutants -n 500 -seed $$(date +%Y%m%d) -detect 55

# Tiers that start together would each compile what they share: a build waits for no other.
.PHONY: compile
compile:
	go list -export -deps -test -tags 'peers fault browser' -f '' $$($(packages)) >/dev/null

.PHONY: modules
modules:
	@for module in . devkit outbox examples/service examples/service/test; do (cd $$module && $(CURDIR)/test/retry "go mod download in $$module" go mod download) || exit; done

.PHONY: test-short
test-short: ## the Go-only tests, under two minutes
	go test -short $$($(packages))
	@for module in $(LIBRARY); do (cd $$module && go test ./...) || exit; done

# test/packages divides the tests of product and devkit between test-race, test-go and
# test-full.
.PHONY: test-go
test-go: ## the Go tests, without the simulations; -short for the packages of test-race
	$(call gotest,pkgname,$(again) --packages "$$(./test/packages go)",-timeout 40m)
	$(call gotest,pkgname,$(again) --packages "$$(./test/packages race)",-short -timeout 40m)

.PHONY: test-full
test-full: ## the Go tests that -short makes smaller or skips, with all their seeds and sizes
	$(call gotest,pkgname,$(again) --packages "$$(./test/packages full)",-timeout 40m -run "$$(./test/packages tests)")

# The library is what other teams import: it builds and passes with the gocql of its own
# go.mod, upstream's 1.7.0, and lists at most 20 modules.
.PHONY: test-library
test-library: ## the library modules, alone: vet, tests, number of modules; their statements with another driver; the example of a service
	@echo "module devkit, drivers" && cd devkit && go vet -tags drivers ./drivers && go test -tags drivers ./drivers
	@for module in $(LIBRARY); do (cd $$module && echo "module $$module" && go vet ./... && go test ./... && \
		n=$$(go list -m all | wc -l) && { ((n <= 20)) || { echo "$$module lists $$n modules, more than 20" >&2; exit 1; }; }) || exit; done
	@./test/released
	@cd examples/service && go vet ./... && cd test && echo "module examples/service/test" && go vet ./... && go test ./...

# The tests of the commands in which several services or instances run in one process.
together := ^Test(Admin_OrdersAndMessages|Relays_CarrySeveralTables|Sharing_StandsBy|Subscriptions_PushToAWebhook|Verifier_Repairs)$$

# The detector needs cgo: without C code of Pebble's, and without the linker of C.
race := -race -tags pebblegozstd -ldflags=-linkmode=internal

# Seeds and sizes of -short, since the detector makes all of it ten times slower. Each test
# binary has one processor: the detector's scheduler is random anyway, and threads that
# contend for its memory cost up to a third more. nightly-race has all processors.
.PHONY: test-race
test-race: cc ## the Go tests of packages that use goroutines, under the race detector with -short
	./test/detector $(call gotest,pkgname,$(again) --packages "$$(./test/packages race)",$(race) -short -cpu 1 -timeout 40m)
	./test/detector $(call gotest,pkgname,$(again) --packages ./cmd/outbox,$(race) -short -cpu 1 -timeout 40m -run "$(together)")
	@for module in $(LIBRARY); do (cd $$module && go test $(race) ./...) || exit; done

.PHONY: explore
explore: ## the Go tests with other seeds than usual (TEST_SEED=42 for those of a failure)
	TEST_SEED=$${TEST_SEED:-$$RANDOM$$RANDOM} $(call gotest,pkgname,--packages "$$($(packages) | grep -v /test/sim$$)",-timeout 40m)

.PHONY: test-virtual
test-virtual: export LATER_SEEDS = 15
test-virtual: export SUBSCRIBING_SEEDS = 8
test-virtual: export INBOX_SEEDS = 12
# Goroutines in a bubble wait for each other: a second processor costs half more.
test-virtual: ## the simulations in virtual time: all scenarios, kept seeds, and some more
	$(call gotest,pkgname,$(again) --packages ./test/sim/...,-cpu 1 -timeout 40m)
	$(MAKE) sim

.PHONY: sim
sim: ## the whole system by random plans of what goes wrong (SEEDS=10000 for long, FIRST=1)
	go run ./test/sim/run -seeds $(SEEDS) -first $(FIRST)

.PHONY: test-peers
test-peers: java npm ## conformance and the inbox with a real Apache Cassandra, end to end on a real Apache Kafka, generated clients
	$(call gotest,testname,$(again) --packages "$$(git grep -l '^func TestPeer' -- test | xargs -n1 dirname | sort -u | sed 's|^|./|')",-tags peers -count=1 $(SHORT) -timeout 40m -run Peer)

.PHONY: test-real
test-real: ## each statement of the product on your ScyllaDB, in fresh keyspaces: OUTBOX_SCYLLA_HOSTS=HOST[,HOST] (without it on the embedded one)
	go test ./test/releases -run TestReal -count 1 -v -timeout 2h

.PHONY: test-api
test-api: ## the running APIs against their own descriptions, with schemathesis (needs Python 3 with venv)
	./test/api/run

.PHONY: test-fault
test-fault: ## real processes, killed with SIGKILL at random moments
	$(call gotest,testname,$(again) --packages ./test/fault/...,-tags fault -count=1 -timeout 40m -run Fault)

.PHONY: test-browser
test-browser: chromium ## the web console in a real Chromium (OUTBOX_SCREENSHOTS=DIR keeps pictures)
	$(call gotest,testname,$(again) --packages ./test/browser,-tags browser -count=1 -timeout 40m)

# The tests that take the pictures of the documentation. What docs/images contains is made anew.
pictures := ^Test(Live_RateAndLatency|Overview_(BreakerOpens|InstancesThatShare)|Bulk_GroupIsReplayed|Topics_DecodedBySchema)$$

.PHONY: screenshots
screenshots: chromium ## make the pictures of the documentation, docs/images, by the tests of the console
	rm -rf bin/screenshots
	OUTBOX_SCREENSHOTS=$(CURDIR)/bin/screenshots $(call gotest,testname,--packages ./test/browser,-tags browser -count=1 -timeout 40m -run '$(pictures)')
	for image in docs/images/*.png; do cp bin/screenshots/"$${image##*/}" docs/images; done

# make mutants resumes where it was stopped. All take days: PACKAGES and MUTANTS choose some.
.PHONY: mutants mutants-changed
mutants: ## break the code in one place at a time, and list the breaks that no test notices (PACKAGES=./relay/internal/fence, MUTANTS=500 SEED=7 for a sample)
	go run ./test/mutants -n $${MUTANTS:-0} -seed $${SEED:-1} $${PACKAGES:-}

mutants-changed: ## the same for a sample of the lines that changed since BASE=main, with the tests of their packages
	go run ./test/mutants -changed $${BASE:-main} -n $${MUTANTS:-60} -near

.PHONY: fuzz-short
fuzz-short: ## every fuzz target with ten thousand inputs (FUZZTIME=10m for long)
	./test/fuzz-all $(FUZZTIME)

BENCH ?= --runs 5 --duration 8s --drain 500000 --restart --peers tuned,defaults

# report,BLOCK,FLAGS prints the report of a benchmark; with UPDATE=1 it replaces that block of
# docs/performance.md.
report = if [[ -n "$${UPDATE:-}" ]]; then \
		bin/outbox-dev bench $(2) -o markdown >bin/bench.md; \
		./test/readme-table $(1) docs/performance.md <bin/bench.md; \
	else bin/outbox-dev bench $(2); fi

.PHONY: bench
bench: build ## measure the relay beside the clients alone: the table in docs/performance.md (UPDATE=1 writes it)
	@$(call report,bench,$(BENCH))

BENCHSUSTAINED ?= --write-batch 20

.PHONY: bench-sustained
bench-sustained: build ## 20,000 events/s for 15 minutes, then kill the relay: the block in docs/performance.md (UPDATE=1 writes it)
	@$(call report,bench-sustained,sustained $(BENCHSUSTAINED))

BENCHSERVICES ?= --runs 5

.PHONY: bench-services
bench-services: build ## measure orders, messages, the schedule, subscriptions and shapes of load beside the clients alone: the tables in docs/performance.md (UPDATE=1)
	@for what in orders messages schedule subscriptions shapes; do \
		$(call report,bench-$$what,$$what $(BENCHSERVICES)); \
	done

# A minute for each number of streams, and two for the curve.
.PHONY: bench-streams
bench-streams: build ## measure 1 to 3,072 CDC streams, and what the latency costs the database, by the costs of a ScyllaDB node: the blocks in docs/performance.md (UPDATE=1)
	@$(call report,bench-streams,streams $(BENCHSTREAMS))
	@$(call report,bench-latency-cost,latency-cost $(BENCHSTREAMS))

.PHONY: bench-million
bench-million: build ## a million messages for later: the relay's memory and how late it is (WAITING=20000 for short)
	bin/outbox-dev bench schedule --waiting $${WAITING:-1000000}

.PHONY: bench-go
bench-go: ## the Go benchmarks
	go test -run '^$$' -bench . -benchmem $$($(packages))

.PHONY: bench-smoke
bench-smoke: ## every Go benchmark once, so that they keep working
	go test -vet=off -run '^$$' -bench . -benchtime 1x $$(./test/packages bench) | { grep --line-buffered -vE '^(\?|PASS$$|ok .*\[no tests to run\])' || true; }

vale := go tool -modfile=test/vale.mod vale

.PHONY: prose
prose: ## the glossary's words in README, CHANGELOG and docs, by Vale
	@if echo 'It says that the letter was buried.' | $(vale) --ext=.md >/dev/null; then echo "the prose linter accepts a planted idiom"; exit 1; fi
	$(vale) --output=line *.md docs .github

.PHONY: lint
lint: prose ## gofumpt, go vet, staticcheck, prose
	@out=$$(./test/tool $(GOFUMPT) -l $$(git ls-files '*.go')); if [[ -n $$out ]]; then echo "not gofumpt-formatted (make fmt):"; echo "$$out"; exit 1; fi
	go vet -tags 'peers fault browser' $$($(packages))
	./test/tool $(STATICCHECK) -tags 'peers,fault,browser' $$($(packages))

.PHONY: alerts
alerts: ## test the alert rules, the dashboard, its queries and the routes of Alertmanager
	./test/promtool test rules deploy/prometheus/alerts_test.yml
	sed 's:/etc/prometheus/::; /^  [a-z_]*_histograms: true$$/d' deploy/prometheus/prometheus.yml >deploy/prometheus/.checked.yml # Debian's promtool 2 refuses them
	./test/promtool check config deploy/prometheus/.checked.yml; rm deploy/prometheus/.checked.yml
	./test/amtool check-config deploy/alertmanager/alertmanager.yml
	./test/amtool config routes test --config.file=deploy/alertmanager/alertmanager.yml --verify.receivers=on-call severity=critical
	./test/amtool config routes test --config.file=deploy/alertmanager/alertmanager.yml --verify.receivers=team severity=warning
	PROMTOOL=$(CURDIR)/test/promtool go test -count=1 ./test/layout -run DashboardQueries
	go run -modfile=test/grafana.mod test/grafana/main.go deploy/grafana/dashboards/*.json

.PHONY: test-million
test-million: ## a million dead letters: each listing's p95, and the memory (DEAD_LETTERS=20000 for short)
	DLQ_DEAD_LETTERS=$${DEAD_LETTERS:-1000000} go test ./dlq -run TestStore_ManyDeadLetters -v -count=1 -timeout 2h

.PHONY: cloud-check
cloud-check: ## test what only make build-cloud links: archives at servers of the protocols of S3, Google Cloud and Azure, credentials of AWS (needs npm)
	go vet -tags cloud ./dlq/archive/cloud ./internal/app ./cmd/outbox
	go run ./test/clouds go test -tags cloud -vet=off -count=1 -run '^Test(Bucket|ClaimCheck|Kafka)_' ./dlq/archive/cloud ./internal/app ./cmd/outbox

.PHONY: fmt
fmt: ## format the code
	./test/tool $(GOFUMPT) -w $$(git ls-files '*.go')

.PHONY: vuln
vuln: ## known vulnerabilities, where the database is reachable
	@./test/vuln-check './test/tool $(GOVULNCHECK)'

conform = ./test/tool $(KUBECONFORM) -strict -schema-location test/deploy/schemas.json

.PHONY: compose-check
compose-check: ## validate docker-compose.yml, the objects of Kubernetes and the systemd units
	./test/tool $(COMPOSESPEC) docker-compose.yml >/dev/null && echo "docker-compose.yml: valid"
	@if sed 's/replicas:/replica:/' deploy/kubernetes/base/outbox.yaml | $(conform) >/dev/null; then echo "kubeconform accepts a misspelt field"; exit 1; fi
	$(conform) -summary deploy/kubernetes/{base/outbox,monitoring/monitoring,keda/keda}.yaml
	./test/systemd

.PHONY: test-compose
test-compose: ## run docker-compose.yml: a killed relay, restarts, down and up (needs Docker, or root on Debian)
	./test/compose

.PHONY: kubernetes
kubernetes: ## render the chart with Helm, build its overlays with kustomize, validate both
	./test/kubernetes $(HELM) $(KUSTOMIZE) $(KUBECONFORM)

# .goreleaser.yaml names them.
release release-check: export CYCLONEDX := $(CYCLONEDX)
release release-check: export COSIGN := $(COSIGN)
release-check: export CRANE := $(CRANE)

.PHONY: release-check
release-check: ## make a release for this platform: packages, images, SBOMs, signatures; publish nothing
	./test/release-check $(GORELEASER)

.PHONY: release
release: # by the release workflow
	./test/tool $(GORELEASER) release --clean

.PHONY: java
java:
	@./test/need java mvn

.PHONY: npm
npm:
	@./test/need npm

.PHONY: cc
cc:
	@./test/need cc

.PHONY: chromium
chromium:
	@./test/need chromium

.PHONY: clean
clean: ## remove what the targets made (the data of `make dev` too)
	rm -rf bin dist .outbox .peers .tools
