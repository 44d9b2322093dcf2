VERSION ?= $(patsubst v%,%,$(shell git describe --tags --always --dirty 2>/dev/null || echo dev))
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
BINARY  ?= plantstore
CREATED ?= $(shell git log -1 --format=%cI 2>/dev/null || echo 1970-01-01T00:00:00Z)
LDFLAGS := -s -w -X plantstore/cmd.version=$(VERSION) -X plantstore/cmd.commit=$(COMMIT)
# Leaves out Gin's MessagePack codec: a fifth of the compilation, and nothing uses it.
TAGS    := nomsgpack
# SQLite, which is translated from C, has locks of its own: the race detector would only make
# it five times slower. Its callers are still watched. The packages beside it use sync.Map, whose copy in
# them must be watched: the linker takes one copy for all packages.
RACE    := -race -gcflags=modernc.org/sqlite/lib=-race=false
# make lint runs vet, with more checks.
TESTS   := go test -vet=off -parallel 4 -timeout 20m -tags $(TAGS),pgbouncer,haproxy,strace
NEEDS   := postgresql pgbouncer haproxy strace curl jq sqlite3
# Those of all tests, so that the linters see each file.
ALLTAGS  = $(shell grep -h '^//go:build [a-z]' tests/*/*.go | cut -d ' ' -f 2- | grep -o '[a-z]*' | sort -u | paste -sd ,)
LINT    := go tool -modfile=.ci/lint.mod golangci-lint
VULN    := go tool -modfile=.ci/lint.mod govulncheck
REDOCLY := @redocly/cli@1.34.5
SPECTRAL := @stoplight/spectral-cli@6.16.3
AXE     := axe-core@4.14.1
HISTORIES ?= 150
TRIALS  := Linearizable|Outages|StopUnderLoad|StandbyLags|StandbyFails|Promotion|RollingRestarts|Pgbouncer|UpgradeUnderLoad|Soak|TestImage$$|GeneratedClients|WebhookLibrary|Feed
VENVS   := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/plantstore
# Installs the requirements in .ci/NAME.txt in a virtual environment of that name.
pip      = python3 -m venv '$(VENVS)/$(1)' && '$(VENVS)/$(1)/bin/pip' install --quiet --disable-pip-version-check -r .ci/$(1).txt

.DEFAULT_GOAL := help
# Those with a description: all of them. bench, docs and release are folders, too.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\# .*/\1/p' $(MAKEFILE_LIST))

help: ## List all targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Run the service with its default configuration
	go run -tags $(TAGS) .

build: ## Build the static binary ./plantstore, or the file BINARY
	CGO_ENABLED=0 go build -tags $(TAGS) -trimpath -ldflags '$(LDFLAGS)' -o '$(BINARY)' .

test: ## Run all tests; installs PostgreSQL, pgbouncer, HAProxy, strace and Chromium if they are missing
	@tests/prerequisites.sh $(NEEDS) chromium
	$(TESTS),browser,recipe ./...

race: ## Run all tests but those in the browser with the race detector
	@tests/prerequisites.sh $(NEEDS) gcc libc6-dev
	$(TESTS) $(RACE) ./...

coverage: ## Run all tests and print the coverage of all code, that of the program under test included
	@tests/prerequisites.sh $(NEEDS) chromium
	@rm -rf coverage && mkdir coverage
	$(TESTS),browser -cover -covermode=atomic ./... -args -test.gocoverdir='$(CURDIR)/coverage'
	@go tool covdata textfmt -i=coverage -o coverage/all.txt
	@grep -v '^plantstore/bench/' coverage/all.txt > coverage/profile.txt
	@go tool cover -func=coverage/profile.txt | awk '/^total:/ { print "coverage of all code, including the program under test: " $$3 }'

results: ## Run the trials of faults and a soak at their full length, as root, and of clients, and write tests/RESULTS.md (30 minutes)
	@tests/prerequisites.sh postgresql pgbouncer haproxy prometheus npm maven default-jdk-headless python3-venv
	@printf '# Results\n\nOf `make results`, on %s, with %s on %s processors.\n' "$$(date +%F)" "$$(go version | cut -d' ' -f3)" "$$(nproc)" > tests/RESULTS.md.new
	CGO_ENABLED=0 TEST_CITUS_URL= RESULTS='$(CURDIR)/tests/RESULTS.md.new' HISTORIES='$(HISTORIES)' go test -p 1 -count=1 -timeout 60m -tags haproxy,pgbouncer,prometheus,clients,soak,$(TAGS) -run '$(TRIALS)' ./tests/...
	@sed -n '/^## Citus/,$$p' tests/RESULTS.md >> tests/RESULTS.md.new
	mv tests/RESULTS.md.new tests/RESULTS.md

test-citus: ## Run the tests of operations and faults on the Citus cluster that TEST_CITUS_URL names, and write its part of tests/RESULTS.md (6 minutes)
	@tests/prerequisites.sh postgresql
	HISTORIES='$(HISTORIES)' TAGS='$(TAGS)' .ci/test-citus

fuzz: ## Fuzz the decoders of JSON, CSV and NDJSON, each for a minute
	for target in $$(grep -oh '\bFuzz[A-Z][A-Za-z]*' controllers/*_test.go | sort -u); do go test -run='^$$' -tags $(TAGS) -fuzz="^$$target\$$" -fuzztime=1m -fuzzminimizetime=100x ./controllers || exit; done

bench: ## Compare the service with its baselines and write bench/RESULTS.md and .svg (45 minutes)
	@tests/prerequisites.sh postgresql
	go run -tags $(TAGS) ./bench -chart bench/RESULTS.svg.new > bench/RESULTS.md.new
	mv bench/RESULTS.md.new bench/RESULTS.md
	mv bench/RESULTS.svg.new bench/RESULTS.svg

bench-against: ## Compare the working tree with the revision REV, operation by operation (10 minutes; ONLY=post,get takes less)
	@tests/prerequisites.sh postgresql
	$(if $(REV),,$(error REV must name a revision to compare with: make bench-against REV=HEAD))go run -tags $(TAGS) ./bench -against '$(REV)' -only '$(ONLY)' $(if $(ROUNDS),-rounds $(ROUNDS))

drill: ## Measure how much imports, exports and other long work delay others (four minutes per round: ROUNDS=1)
	@tests/prerequisites.sh postgresql
	go run -tags $(TAGS) ./bench -only isolation,sharing $(if $(ROUNDS),-rounds $(ROUNDS))

check-consistency: ## Check that the clients of two replicas see linearizable histories while replicas and databases are killed (5 minutes at most; SEED=… repeats a run)
	@tests/prerequisites.sh postgresql gcc libc6-dev
	HISTORIES='$(HISTORIES)' go test $(RACE) -v -count=1 -timeout 5m -tags $(TAGS) -run 'Linearizable|KillService|KillPostgres|Falsified' ./tests/operate

lint: ## Run the linters
	$(LINT) run --build-tags $(ALLTAGS),$(TAGS) ./...
	$(LINT) fmt --diff

vulncheck: ## Check the dependencies for known vulnerabilities, if their database is reachable
	@output=$$($(VULN) -tags $(TAGS) ./... 2>&1); status=$$?; echo "$$output"; \
		case "$$status $$output" in \
		0*) ;; \
		*'fetching vulnerabilities'*) echo 'NOT CHECKED for known vulnerabilities: their database is unreachable' ;; \
		*) exit $$status ;; \
		esac

format: ## Format the code
	$(LINT) fmt

docs: ## Generate the files, and parts of pages, that come from the code
	go run -tags $(TAGS) ./docs/gen

check-docs: ## Check that the generated files are up to date, and the links of the pages
	go test -count=1 -tags $(TAGS) ./docs/...

check-api: ## Check the OpenAPI document with Redocly and Spectral, the first page and Swagger UI with axe (npm), and the service against it with Schemathesis (PyPI)
	@tests/prerequisites.sh npm python3-venv postgresql chromium
	npx --yes $(REDOCLY) lint --config .ci/redocly.yaml docs/openapi.json
	npx --yes $(SPECTRAL) lint --fail-severity hint --ruleset .ci/spectral.yaml docs/openapi.json
	npm install --silent --no-save --prefix '$(VENVS)/axe' $(AXE)
	AXE='$(VENVS)/axe/node_modules/axe-core/axe.min.js' go test -count=1 -tags browser,axe,$(TAGS) -run BrowserAccessibility ./tests/clients
	$(call pip,schemathesis)
	SCHEMATHESIS='$(VENVS)/schemathesis/bin/schemathesis' go test -v -count=1 -timeout 10m -tags schemathesis,$(TAGS) -run Schemathesis ./tests/api

check-clients: ## Generate six clients from the OpenAPI document, call all operations with them, and run its samples (npm, Maven, PyPI; 2 minutes)
	@tests/prerequisites.sh npm maven default-jdk-headless python3-venv curl
	go test -v -count=1 -timeout 20m -tags clients,$(TAGS) -run 'GeneratedClients|CodeSamples|WebhookLibrary' ./tests/clients ./tests/feed

check-alerts: ## Check the alerts with promtool, and that the dashboard and the alerts explain outages, with Prometheus (2 minutes)
	@tests/prerequisites.sh prometheus postgresql
	promtool check rules deploy/prometheus/alerts.yaml
	promtool test rules deploy/prometheus/alerts_test.yaml
	go test -v -count=1 -timeout 5m -tags prometheus,$(TAGS) -run Dashboard ./tests/operate

check-deploy: ## Check deploy/: manifests, Compose file, units of systemd and HAProxy's configuration, and their settings against the program
	@tests/prerequisites.sh python3-venv haproxy prometheus systemd
	$(call pip,kubernetes-validate)
	PATH="$$PATH:/usr/sbin" KUBERNETES_VALIDATE='$(VENVS)/kubernetes-validate/bin/kubernetes-validate' go test -v -count=1 -tags deploy,$(TAGS) -run TestDeploy ./tests/operate

screenshot: ## Update the pictures of Swagger UI in docs/
	@tests/prerequisites.sh chromium
	SCREENSHOTS='$(CURDIR)/docs' go test -count=1 -tags browser,$(TAGS) -run 'BrowserSwaggerUI/create|BrowserFirstScreen' ./tests/clients

rename: ## Rename the module, as in make rename MODULE=example.org/plantstore, so that go install works where it is hosted
	.ci/rename '$(MODULE)'

components: build ## Write the bill of materials and the licenses of the binary beside it: plantstore.cdx.json, licenses.txt (jq)
	VERSION='$(VERSION)' .ci/components '$(BINARY)'

release: ## Write the files of a release to release/: programs and images for all platforms, checksums, licenses, bills of materials (20 minutes at first, then one)
	@tests/prerequisites.sh buildah jq zip
	VERSION='$(VERSION)' COMMIT='$(COMMIT)' CREATED='$(CREATED)' .ci/release

check-release: release ## Check the release of the last commit: that building it in another folder gives the same bytes, that it runs, and its licenses
	@tests/prerequisites.sh unzip
	VERSION='$(VERSION)' .ci/check-release

image: ## Build the container image plantstore; PLATFORMS=linux/amd64,linux/arm64 builds it for both
	docker build $(if $(PLATFORMS),--platform '$(PLATFORMS)') -t plantstore \
		--build-arg VERSION='$(VERSION)' --build-arg COMMIT='$(COMMIT)' --build-arg CREATED='$(CREATED)' .
