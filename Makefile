# The commands people and CI run. Every target works from a clean checkout.

GO          ?= go
STATICCHECK  = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2

# The root module is built and tested without its neighbours in go.work, as its
# users have it: what they require would raise what it requires.
export GOWORK = off
# make lint vets all. go test would do so again, and with all that is imported, each time
# that it is compiled in another way: for -race, for 386, with other versions.
export GOFLAGS := $(strip $(GOFLAGS) -vet=off)
WORKSPACE = GOWORK='$(CURDIR)/go.work'
# The modules beside it: they hold what must never reach a user's go.sum.
MODULES   = $(patsubst $(CURDIR)/%,%,$(filter-out $(CURDIR),$(shell $(WORKSPACE) $(GO) list -m -f '{{.Dir}}')))
EVERYTHING = ./... $(MODULES:%=./%/...)

PKG      ?= ./...
BENCH    ?= .
COUNT    ?= 1
# A number of inputs for each target. A duration works too, but go test may then
# fail with "context deadline exceeded" when it ends, although no input failed.
FUZZTIME ?= 20000x
ROUNDS   ?= 5
TIME     ?= 1s
# What the tests start; STINT_REDIS_SERVER in the environment names another.
REDIS     = $(or $(STINT_REDIS_SERVER),redis-server)

.PHONY: test test-mutants test-faults test-servers test-compat lua5.4 test-examples test-console pictures chromium test-install test-newest test-observe test-traefik redis prometheus run race test-32 lint tidy api test-modules bench bench-redis bench-script bench-peers bench-serve fuzz fuzz-list soak plots plots-check

# What takes longest begins first, so that a core isn't left without a package at the end.
LONGEST = $(if $(filter ./...,$(PKG)),./store/redisstore . ./store/redisstore/internal/wire ./lua ./internal/memory)

# Tests often wait, for servers and for each other: half as many packages again as there are cores
# keep those busy.
PACKAGES = $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN || echo 2) * 3 / 2 )))

# Each package's line is printed when it ends (tests/progress): go test holds it back until those named before
# have ended.
#
# Tests have small heaps, which the collector would otherwise look through for a tenth of
# their time.
test: export GOGC ?= 400
test: redis ## the tests, as a reader of the README runs them: 2 to 5 minutes on 2 cores, by the machine
	@echo "testing every package, on $$($(REDIS) --version 2>/dev/null | cut -d' ' -f1-3 || echo no Redis): 2 to 5 minutes on 2 cores, by the machine"
	@echo "(longer suites: make test-faults, make test-servers, make test-examples)"
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && $(WORKSPACE) $(GO) build -o "$$tmp/progress" ./tests/progress && set -x && \
	"$$tmp/progress" $(GO) test -json -p $(PACKAGES) -timeout 20m -count=1 $(LONGEST) $(PKG) $(if $(filter ./...,$(PKG)),&& \
	$(WORKSPACE) "$$tmp/progress" $(GO) test -json -p $(PACKAGES) -count=1 ./tests/... ./tests/routers/... ./tests/rpc/... ./policy/... ./cmd/stint/... ./adapters/grpc/...)

# Longer suites. redistest.Suite says which tests are whose; their names begin with the suite's.
test-faults: redis ## servers killed, paused and split under load, in 2 minutes: RACE=-race
	@echo "killing, pausing and splitting servers under load: about 2 minutes"
	STINT_SUITE=faults $(GO) test -count=1 $(RACE) -run '^TestFaults' ./store/redisstore ./internal/test/redistest

test-servers: redis ## the store's suite on each kind of server and client, priorities and shared pauses on one, in 3 minutes
	@echo "the store's suite on a cluster, a sentinel, a ring, and with every option: about 3 minutes"
	STINT_SUITE=servers $(GO) test -count=1 $(RACE) -run '^TestServers' . ./store/redisstore ./lua ./adapters/internal/client

test-compat: export GOGC ?= 400
test-compat: redis lua5.4 ## the store's suite where scripts run on another Lua, Dragonfly's 5.4 or miniredis's, in 2 minutes
	@echo "the store's suite under Lua 5.4 and on miniredis: about 2 minutes"
	STINT_SUITE=compat $(GO) test -count=1 $(RACE) -run '^TestCompat' ./store/redisstore ./internal/test/redistest
	cd tests && STINT_SUITE=compat $(WORKSPACE) $(GO) test -count=1 -run '^TestCompat' ./miniredis

lua5.4:
	@command -v lua5.4 >/dev/null && exit; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing lua5.4, which the tests start"; \
		{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends lua5.4; } >/dev/null 2>&1; \
	fi; \
	command -v lua5.4 >/dev/null && exit; \
	echo "no lua5.4, which these tests start: apt-get install lua5.4 changes that" >&2; exit 1

test-examples: redis ## each example, and the commands that it prints, in a minute
	@echo "running each example and what it tells its user to try: about a minute"
	STINT_SUITE=examples $(GO) test -count=1 -parallel 8 -run '^TestExamples' ./examples

test-mutants: ## each mistake planted in what runs concurrently is found by its exploration, and each in a store by the suite, in 3 minutes
	STINT_MUTANTS=1 $(GO) test -count=1 -timeout 18m -run '^(TestEveryOrder|TestMutants$$)' ./internal/... ./tenants ./store/...

test-console: chromium ## the live page in a real browser, in half a minute
	cd console/browser && $(WORKSPACE) STINT_REQUIRE_CHROMIUM=1 $(GO) test -count=1 .

pictures: chromium ## docs/img's pictures of pages: the live page of examples/console, and the report of docs/rollout.md's plan
	cd console/browser && $(WORKSPACE) STINT_REQUIRE_CHROMIUM=1 $(GO) test -count=1 -run '^TestPictures$$' . -args -pictures '$(CURDIR)/docs/img'

chromium:
	@command -v chromium >/dev/null && exit; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing chromium, which the tests drive"; \
		{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium; } >/dev/null 2>&1; \
	fi; \
	command -v chromium >/dev/null && exit; \
	echo "no chromium, which these tests drive: apt-get install chromium changes that" >&2; exit 1

test-install: ## what a release would tag, installed by who has nothing else, in 2 minutes
	cd tests && STINT_SUITE=install $(WORKSPACE) $(GO) test -count=1 -run '^TestInstall' ./project
	STINT_SUITE=install $(GO) test -count=1 -run '^TestInstall' ./store/redisstore

# go.mod requires the oldest versions that pass, since a requirement upgrades who has an older one.
NEWEST = github.com/gin-gonic/gin github.com/labstack/echo/v4 github.com/redis/go-redis/v9
test-newest: redis ## the tests of what imports them, with the newest gin, echo (v4 and v5) and go-redis, in a copy
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && git ls-files -z | tar --null -cT - | tar -x -C "$$copy" && \
	cd "$$copy" && $(GO) get $(addsuffix @latest,$(NEWEST)) && $(GO) mod tidy && grep -E '^	($(subst $(eval) ,|,$(NEWEST))) ' go.mod && \
	$(GO) test -count=1 ./adapters/... && $(GO) test -count=1 -run 'Conformance|Client|Hook|PausedServer' ./store/redisstore && \
	export GOWORK="$$copy/go.work" && $(GO) work use && $(GO) test -count=1 ./tests/routers && \
	$(GO) mod edit -require=github.com/labstack/echo/v5@$$($(GO) list -m -f '{{.Version}}' github.com/labstack/echo/v5@latest) adapters/echov5/go.mod && \
	grep echo/v5 adapters/echov5/go.mod && scripts/alone adapters/echov5 test -mod=mod -count=1 .

test-observe: prometheus ## dashboard and alerts, on a real Prometheus that scrapes a server under load, in half a minute
	@echo "asking a Prometheus for each panel and each alert: about half a minute"
	cd observe/otel && STINT_SUITE=observe $(WORKSPACE) $(GO) test -count=1 -v -run '^TestObserve' ./examples/prometheus

# CI doesn't: to compile Traefik takes longer than any other step.
test-traefik: ## stint serve behind a whole Traefik, configured as docs/serve.md says: 5 minutes at first, then one
	@echo "compiling Traefik, which takes 5 minutes on 2 cores at first"
	cd tests && STINT_SUITE=traefik $(WORKSPACE) $(GO) test -count=1 -timeout 30m -v -run '^TestTraefik$$' ./serve

prometheus: ## prometheus and promtool: found, or installed where that may be; a test says how else
	@command -v prometheus >/dev/null && command -v promtool >/dev/null && exit; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing prometheus, which the test starts"; \
		{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends prometheus && \
		{ systemctl disable --now prometheus || service prometheus stop || :; }; } >/dev/null 2>&1; \
	fi; :

# A server that Debian starts along with the package is of no use to the tests.
redis: ## redis-server: found, installed where that may be, or one line on how
	@command -v $(REDIS) >/dev/null && exit; \
	if [ $(REDIS) = redis-server ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing redis-server, which the tests start"; \
		{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends redis-server && \
		{ systemctl disable --now redis-server || service redis-server stop || :; }; } >/dev/null 2>&1; \
	fi; \
	command -v $(REDIS) >/dev/null && exit; \
	echo "no $(REDIS), so no tests on Redis: apt-get install redis-server, or brew install redis, changes that" >&2; \
	[ -z "$$STINT_REQUIRE_REDIS$$STINT_REDIS_SERVER" ]

run: ## the quickstart server of the README
	$(GO) run ./examples/quickstart

# Packages store and lua have no goroutine. An exploration runs one at a time, and hands over
# in a way that the detector takes for synchronization: it would find nothing, slowly. So would
# tests that say so where they skip, or do less.
race: redis ## every test of what runs concurrently, under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -count=1 -race -skip EveryOrder $(filter-out ./lua,$(LONGEST)) \
		$(if $(filter ./...,$(PKG)),$$($(GO) list ./... | grep -vE '/(lua|store|test/explore/steps)$$'),$(PKG))
	$(if $(filter ./...,$(PKG)),$(WORKSPACE) CGO_ENABLED=1 $(GO) test -count=1 -race ./policy/... ./adapters/grpc/...)

# What computes with int: adapters, examples and tools have no numbers of their own, and an
# exploration is about the order in which things happen. On Redis, scripts compute. Some hosts run
# 64-bit programs only. There it is compiled, with the tests that don't need the frameworks, and the
# last line says so.
test-32: redis ## the tests of what counts, where int has 32 bits
	GOARCH=386 CGO_ENABLED=0 $(GO) list -export . ./internal/... ./store/... >/dev/null
	GOARCH=386 CGO_ENABLED=0 $(GO) list -test -export ./store ./internal/algorithm ./internal/memory ./internal/decide ./internal/lines ./internal/adaptive ./internal/field >/dev/null
	@if GOARCH=386 CGO_ENABLED=0 $(GO) test -run '^$$' ./internal/optionerror ./internal/field 2>&1 | grep -q 'exec format error'; \
	then echo "NOT RUN: this machine runs no 32-bit programs; what make test-32 tests has only been compiled"; \
	else set -x; GOARCH=386 CGO_ENABLED=0 $(GO) test -count=1 -short -skip EveryOrder . $$($(GO) list ./store/... | grep -v /redisstore) && \
	GOARCH=386 CGO_ENABLED=0 $(GO) test -count=1 -short -run '^(TestConformance|TestTwinsAtTheLargest)$$' ./store/redisstore/...; fi

# One call for all modules: each would look through all that they import again.
lint: ## gofmt, go vet, staticcheck, names in comments, a changed API in CHANGELOG.md; rules and reasons in staticcheck.conf
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt -w these:"; echo "$$unformatted"; exit 1; }
	$(WORKSPACE) scripts/tidy -diff
	$(WORKSPACE) $(GO) vet $(EVERYTHING)
	$(WORKSPACE) $(STATICCHECK) $(EVERYTHING)
	cd tests && $(WORKSPACE) $(GO) test -count=1 -run '^TestNames' ./project
	scripts/changed-api

api: ## testdata/api.txt, the exported names, docs/options.md, the options, and docs/licences.md, the dependencies, written anew
	cd tests && $(WORKSPACE) $(GO) test -count=1 -run '^(TestAPI|TestOptionsDocument|TestLicences)$$' ./project -update

tidy: ## go.mod and go.sum of every module: those beside the root follow it
	$(WORKSPACE) scripts/tidy

# The tests of policy, cmd/stint, adapters/grpc, tests and its routers are make test's too, in the workspace; those of
# tests ask it, and make test-console runs the browser's.
ALONE = $(filter-out tests console/browser,$(MODULES))
test-modules: ## every module beside the root as its own go.mod has it, without go.work: vetted, and tested
	@set -e; for m in $(MODULES); do scripts/alone $$m vet ./...; done
	@set -e; for m in $(ALONE); do scripts/alone $$m test ./...; done

bench: ## benchmarks: make bench BENCH=HotKey PKG=./internal/memory COUNT=10
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) $(PKG)

bench-redis: redis ## redisstore beside its peers: make bench-redis ROUNDS=15 TIME=300ms; ONLY=lone: one caller beside redis_rate; ONLY=stacks or limits: several limits, beside what users write or beside one; ONLY=sizing: what servers carry
	cd benchmarks && $(WORKSPACE) $(GO) run ./redis -rounds $(ROUNDS) -time $(TIME) -redis-server $(REDIS) -only "$(ONLY)"

# What each trick of a script buys: SCRIPTS are texts that go run ./lua/print -bare has printed before.
bench-script: redis ## the token bucket's script beside others: make bench-script SCRIPTS=/tmp/before.lua ROUNDS=60
	STINT_SCRIPTS='$(SCRIPTS)' $(GO) test -run '^$$' -bench '^BenchmarkScript$$' -benchtime $(ROUNDS)x ./store/redisstore/internal/wire

# By version, not by a module here: what it requires would raise what cmd/stint is tested with.
RATELIMIT = github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36
bench-serve: redis ## stint serve beside envoyproxy/ratelimit on one Redis, in a minute; its first build takes two more
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && GOBIN="$$tmp" $(GO) install $(RATELIMIT) && cd cmd/stint && \
	$(WORKSPACE) STINT_BENCH_RATELIMIT="$$tmp/service_cmd" $(GO) test -count=1 -v -run '^TestBesideRateLimit$$' ./internal/serve

bench-peers: ## stint beside its peers in memory: make bench-peers ROUNDS=9 TIME=50ms
	cd benchmarks && $(WORKSPACE) $(GO) run ./peers -rounds $(ROUNDS) -time $(TIME)

# By their text: to ask the go command is to build the tests of every package, and
# it doesn't look into the modules below.
FUZZ = grep -HoE '^func Fuzz[A-Za-z0-9_]*' \
	$(if $(filter %/...,$(PKG)),-r --include='*_test.go' $(PKG:/...=),$(PKG)/*_test.go) | \
	sed -E 's|^(.*)/[^/:]*:func (.*)|\1 \2|' | sort

fuzz-list: ## the fuzz targets: directory and name
	@$(FUZZ)

# go test -fuzz would compile the standard library and every dependency anew, with
# counters, for minutes. These have them here: our code and what else reads a path.
COUNTERS = $(patsubst %,-gcflags=%=-d=libfuzzer,github.com/stint-go/stint/... net/url net/http \
	github.com/gin-gonic/gin github.com/labstack/echo/v4 github.com/go-chi/chi/v5 \
	github.com/gorilla/mux github.com/julienschmidt/httprouter github.com/uptrace/bunrouter)
fuzz: ## every fuzz target for FUZZTIME each
	@set -e; export $(WORKSPACE); tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	found=$$($(GO) env GOCACHE)/fuzz/github.com/stint-go/stint; built=; \
	$(FUZZ) | while read -r dir name; do \
		echo "fuzz $$dir $$name for $(FUZZTIME)"; cd '$(CURDIR)'/$$dir; \
		[ "$$dir" = "$$built" ] || $(GO) test -c $(COUNTERS) -o $$tmp/test . || exit 1; built=$$dir; \
		$$tmp/test -test.run '^$$' -test.fuzz "^$$name\$$" -test.fuzztime $(FUZZTIME) -test.fuzzcachedir $$found/$$dir || exit 1; \
	done

soak: redis ## the long form of the random traces; STINT_SEED=n runs one of them
	STINT_LONG=1 $(GO) test -count=1 -timeout 0 $(PKG)

plots: ## draw docs/img from the algorithms themselves, and the table of docs/waiting.md
	cd docs/plots && $(WORKSPACE) $(GO) run . -out ../img
	$(GO) test -count=1 -run '^TestRushTable$$' . -args -table docs/waiting.md

plots-check: plots ## the plots in the documents are those of this code
	@git diff --exit-code --stat -- docs/img docs/waiting.md || { echo "the documents were out of date: commit what 'make plots' drew"; exit 1; }
