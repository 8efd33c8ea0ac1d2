# Targets for people and for .ci/run. "make help" lists them.

GO      ?= go
LINT    := $(GO) tool -modfile=.ci/tools.mod
PACKAGES = ./...
# The race detector needs a C compiler. Without one the tests run all the same, without it.
RACE    ?= $(shell command -v $$($(GO) env CC) >/dev/null 2>&1 && [ "$$($(GO) env CGO_ENABLED)" = 1 ] && echo -race)
# A skipped test names what is missing. FENCEPROXY_NO_SKIP=1 turns a skip into a failure.

.PHONY: help build test short lint fuzz bench growth smoke chaos conformance e2e deps image clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9]+:.*## /{printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/fenceproxy, static
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/fenceproxy ./cmd/fenceproxy

test: ## run every test, with the race detector where there is a C compiler; needs Go alone
	$(GO) test $(RACE) -shuffle=on -timeout 20m $(PACKAGES)

short: ## run the quick tests, without the race detector
	$(GO) test -short $(PACKAGES)

e2e: ## run the command and the examples as a user would
	$(GO) test -count=1 ./cmd/... ./examples/...

lint: ## gofmt, go mod tidy, go vet, staticcheck, errcheck, go-errorlint, checklocks
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then echo "gofmt wants:"; echo "$$unformatted"; exit 1; fi
	$(GO) mod tidy -diff
	$(GO) vet $(PACKAGES)
	$(LINT) staticcheck $(PACKAGES)
	$(LINT) errcheck -ignoretests -exclude .ci/errcheck.txt $(PACKAGES)
	$(LINT) go-errorlint $(PACKAGES)
	$(GO) vet -vettool=$$($(LINT) -n checklocks) -inferred=false ./proxy/... ./tokenstore ./cmd/...

fuzz: ## fuzz each target for FUZZTIME (default 20s)
	@set -e; for pkg in $$($(GO) list $(PACKAGES)); do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $${FUZZTIME:-20s} $$pkg; \
		done; \
	done

bench: ## measure the parts, then the whole beside nginx, HAProxy and do-it-yourself fences (about 12 minutes)
	$(GO) test -run '^$$' -bench . -benchmem ./proxy/gate ./proxy/leg ./tokenstore ./policies
	$(GO) test -run '^$$' -bench . -benchtime 3s ./proxy
	mkdir -p bin && $(GO) run ./cmd/fencebench --out bin/bench.md --svg bin/bench.svg --json bin/bench.json

growth: ## measure start, memory and rates at 0, 1 and 10 million marks, and 10,000 idle clients (about 15 minutes, 3 GB of disk)
	mkdir -p bin && $(GO) run ./cmd/fencebench growth $(GROWTH) --out bin/growth.md

flood: ## a million random paths that the store refuses: no mark, bounded memory and disk (about 10 minutes)
	FENCEPROXY_RANDOM_PATHS=1000000 $(GO) test -count=1 -timeout 60m -v -run TestRandomPaths ./proxy

smoke: ## see that the benchmark runs; its numbers mean nothing
	mkdir -p bin && $(GO) run ./cmd/fencebench --smoke $(SMOKE) --out bin/bench.md --svg bin/bench.svg --json bin/bench.json

chaos: ## faults against the real binary for CHAOSTIME (default 10m); the seed is printed, CHAOS="-chaos.seed=7" replays one
	$(GO) test $(RACE) -run 'TestChaos$$' -count=1 -v -timeout 60m ./proxy/chaos -args -chaos.for=$${CHAOSTIME:-10m} $(CHAOS)

conformance: ## run other people's suites (litmus, versitygw's, http-cache-tests) directly and through the proxy, and compare (about 25 minutes)
	[ -d bin/conformance/node_modules/http-cache-tests ] || ! command -v npm >/dev/null || npm install --no-audit --no-fund --prefix bin/conformance http-cache-tests@0.4.5
	FENCEPROXY_CONFORMANCE=1 FENCEPROXY_CACHE_TESTS=$(CURDIR)/bin/conformance/node_modules/http-cache-tests $(GO) test -count=1 -v -timeout 3h ./proxy/conformance

deps: ## install the real servers and clients that tests use (Debian, as root)
	.ci/deps

image: ## build the container image
	docker build -t fenceproxy .

clean: ## remove what was built
	rm -rf bin
