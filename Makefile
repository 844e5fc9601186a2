# Every target works in a clean clone with Go and git; `make help` lists them.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.0.0)
HOSTOS   := $(shell go env GOOS)
HOSTARCH := $(shell go env GOARCH)
LDFLAGS  := -s -w -X main.version=$(VERSION)
GOBUILD  := CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)'
PROGRAMS := customer-managed-workflow-agent workflow-runner workflow-server
# A separate module, because it links Pulumi's SDK.
EVALUATOR := cmd/workflow-esc
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

# The linters are built from their own pinned module into a cache outside the
# repository, once per version.
CACHE    := $(if $(WORKFLOW_LAB_CACHE),$(WORKFLOW_LAB_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/workflowagent/lab)
LINTKEY  := $(shell cat internal/dev/tools/lint/go.mod internal/dev/tools/lint/go.sum | cksum | cut -d' ' -f1)
LINT     := $(CACHE)/lint-$(LINTKEY)-$(HOSTOS)-$(HOSTARCH)

# Unlike the linters, goreleaser is not built from a pinned module here: "go install" at a version builds it
# with exactly the modules that its release lists, while tidying a module here would also download
# those of its dependencies' tests. Versions after 2.16 need a newer Go.
GORELEASER := $(CACHE)/goreleaser-2.16.0
GOVULNCHECK := $(CACHE)/govulncheck-1.6.0
VULNDB := $(or $(GOVULNDB),https://vuln.go.dev)

.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: quickstart
quickstart: ## Run a real deployment end to end on this machine (KEEP=1 leaves everything running).
	@trap 'exit 0' INT; echo "building the quickstart"; \
		go build -o bin/quickstart ./internal/dev/lab/quickstart && KEEP=$(KEEP) bin/quickstart

.PHONY: test
test: ## Run every test tier that this machine can run, and name the others.
	@go run ./internal/dev/lab/tiers

.PHONY: build
build: ## Build the host's binaries into bin/.
	@mkdir -p bin
	$(GOBUILD) -o bin/ $(addprefix ./cmd/,$(PROGRAMS))
	cd $(EVALUATOR) && $(GOBUILD) -o ../../bin/ .
	GOOS=linux GOARCH=amd64 $(GOBUILD) -o bin/workflow-runner-embeddable ./cmd/workflow-runner
	GOOS=linux GOARCH=arm64 $(GOBUILD) -o bin/workflow-runner-embeddable-arm64 ./cmd/workflow-runner

.PHONY: build-all
build-all: ## Build static binaries for every platform into dist/OS_ARCH/.
	@set -e; for platform in $(PLATFORMS); do \
		os=$${platform%/*}; arch=$${platform#*/}; dir=dist/$${os}_$${arch}; mkdir -p $$dir; \
		echo "building $$dir"; \
		GOOS=$$os GOARCH=$$arch $(GOBUILD) -o $$dir/ $(addprefix ./cmd/,$(PROGRAMS)); \
		(cd $(EVALUATOR) && GOOS=$$os GOARCH=$$arch $(GOBUILD) -o ../../$$dir/ .); \
		GOOS=linux GOARCH=amd64 $(GOBUILD) -o $$dir/workflow-runner-embeddable ./cmd/workflow-runner; \
		GOOS=linux GOARCH=arm64 $(GOBUILD) -o $$dir/workflow-runner-embeddable-arm64 ./cmd/workflow-runner; \
	done

# Tests that run only on a Mac are at least compiled.
.PHONY: vet-darwin
vet-darwin: ## Check code and tests for macOS, and link the tests of packages with code for it.
	GOOS=darwin CGO_ENABLED=0 go vet -trimpath ./...
	cd $(EVALUATOR) && GOOS=darwin CGO_ENABLED=0 go vet -trimpath ./...
	@for package in internal/host/service internal/agent/config cmd/customer-managed-workflow-agent; do \
		GOOS=darwin CGO_ENABLED=0 go test -trimpath -c -o /dev/null ./$$package || exit 1; done

$(LINT)/golangci-lint:
	@echo "building golangci-lint and gofumpt (first time only, about 2 to 5 min)"
	@mkdir -p $(LINT)
	@cd internal/dev/tools/lint && CGO_ENABLED=0 go build -trimpath -o $(LINT)/ mvdan.cc/gofumpt github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: tools
tools: $(LINT)/golangci-lint $(GORELEASER)/goreleaser ## Build the linters and goreleaser (with -j2, side by side).

# The version is pinned in internal/dev/tools/kubernetes.
.PHONY: kubernetes
kubernetes: ## Build the Kubernetes that tests use into the cache (first time only, about 7 min on two cores).
	@go build -o bin/cluster ./internal/dev/lab/cluster/up && exec nice -n 10 bin/cluster -build

# Not part of "make test", because few changes need it and its first run takes minutes.
.PHONY: gitea
gitea: ## Test the client of Gitea and deployments against a real one (built into the cache the first time, about 8 min on two cores).
	WORKFLOW_GITEA=1 nice -n 10 go test -count=1 -timeout=40m -p 1 -v -run 'TestReal|TestGitea' ./internal/server/vcs/forges/gitea ./internal/dev/e2e/forge

.PHONY: cluster
cluster: ## Run a Kubernetes cluster for tests until it is interrupted, and print how to use it.
	@go build -o bin/cluster ./internal/dev/lab/cluster/up && exec bin/cluster

SCRIPTS := install.sh $(wildcard packaging/deb/p* packaging/deb/server/p* packaging/rpm/p* packaging/rpm/server/p*)

.PHONY: lint
lint: $(LINT)/golangci-lint ## Check the format and the house rules, including go vet's.
	@unformatted=$$($(LINT)/gofumpt -extra -l cmd internal); \
		if [ -n "$$unformatted" ]; then echo "not formatted (run make fmt):"; echo "$$unformatted"; exit 1; fi
	cd internal/dev/tools/provider && go vet ./...
	cd internal/dev/tools/issuer && go vet ./...
	cd internal/dev/tools/automation && go vet ./...
	cd internal/dev/tools/install && go vet ./...
	cd internal/dev/tools/console && go vet ./...
	cd examples/policy-pack && go vet ./...
	$(LINT)/golangci-lint run ./...
	cd $(EVALUATOR) && $(LINT)/golangci-lint run ./...
	@if command -v shellcheck >/dev/null; then echo "shellcheck $(SCRIPTS)"; shellcheck --shell=sh $(SCRIPTS); \
		else echo "shellcheck is not installed: install.sh and the packages' scripts were not checked"; fi

BASE ?= main

# Packages that depend on the changed ones are compiled; "make test" also runs their tests, and tests with PostgreSQL.
# The end-to-end tests, the evaluator of environments, and modules in internal/dev/tools, have their own tiers.
.PHONY: check
check: $(LINT)/golangci-lint ## Check what differs from the branch BASE (main): format, lint, unit tests. Run it before a commit.
	@unformatted=$$($(LINT)/gofumpt -extra -l cmd internal); \
		if [ -n "$$unformatted" ]; then echo "not formatted (run make fmt):"; echo "$$unformatted"; exit 1; fi
	CGO_ENABLED=0 go vet -trimpath ./...
	cd $(EVALUATOR) && CGO_ENABLED=0 go vet -trimpath ./...
	@base=$$(git merge-base $(BASE) HEAD) || exit 1; \
		packages=$$( (git diff --name-only --diff-filter=d $$base; git ls-files --others --exclude-standard) | \
			grep -E '^(cmd|internal)/.*\.go$$' | grep -vE '/testdata/|^internal/dev/(e2e|tools)/|^$(EVALUATOR)/' | xargs -r -n1 dirname | sort -u | sed 's,^,./,'); \
		[ -z "$$packages" ] || $(LINT)/golangci-lint run --new-from-rev=$$base $$packages || exit 1; \
		CGO_ENABLED=0 go test -trimpath -short -timeout 3m ./internal/dev/layers $$packages

$(GOVULNCHECK)/govulncheck:
	@mkdir -p $(GOVULNCHECK)
	@GOFLAGS= GOBIN=$(GOVULNCHECK) CGO_ENABLED=0 go install -trimpath golang.org/x/vuln/cmd/govulncheck@v1.6.0

# With REQUIRE=all, an unreachable database is an error.
.PHONY: vuln
vuln: ## Check what the programs call for known vulnerabilities of Go and the modules.
	@if curl -fsS -m 30 -o /dev/null $(VULNDB)/index/db.json; then \
		$(MAKE) --no-print-directory $(GOVULNCHECK)/govulncheck && $(GOVULNCHECK)/govulncheck -db $(VULNDB) ./cmd/... && \
		$(GOVULNCHECK)/govulncheck -C $(EVALUATOR) -db $(VULNDB) ./...; \
		else echo "NOT CHECKED for known vulnerabilities: $(VULNDB) cannot be reached (GOVULNDB names another database)"; \
		$(if $(filter all,$(REQUIRE)),exit 1,exit 0); fi

.PHONY: fmt
fmt: $(LINT)/golangci-lint ## Format the code.
	$(LINT)/gofumpt -extra -w cmd internal

# templ is built from its own pinned module into the cache, once per version.
TEMPLKEY := $(shell cat internal/dev/tools/console/go.mod internal/dev/tools/console/go.sum | cksum | cut -d' ' -f1)
TEMPL    := $(CACHE)/templ-$(TEMPLKEY)-$(HOSTOS)-$(HOSTARCH)

$(TEMPL)/templ:
	@echo "building templ (first time only, about 1 min)"
	@mkdir -p $(TEMPL)
	@cd internal/dev/tools/console && CGO_ENABLED=0 go build -trimpath -o $(TEMPL)/ github.com/a-h/templ/cmd/templ

.PHONY: pages
pages: $(TEMPL)/templ ## Format the console's pages and generate their Go files.
	@$(TEMPL)/templ fmt -fail internal/server/console >/dev/null || echo "formatted the pages"
	@$(TEMPL)/templ generate -log-level warn -path internal/server/console

.PHONY: generate
generate: pages ## Regenerate the generated files (pages, sample configurations, references and schemas, property lists).
	go generate ./...

.PHONY: man
man: ## Write the manual pages of the agent and the server to dist/man (SOURCE_DATE_EPOCH dates them; default: the last commit).
	@export SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}; \
		for program in customer-managed-workflow-agent workflow-server; do \
			go run -ldflags '$(LDFLAGS)' ./cmd/$$program man --dir dist/man || exit 1; done

$(GORELEASER)/goreleaser:
	@echo "building goreleaser (first time only, about 5 min)"
	@mkdir -p $(GORELEASER)
	@GOFLAGS= GOBIN=$(GORELEASER) CGO_ENABLED=0 go install -trimpath github.com/goreleaser/goreleaser/v2@v2.16.0

# The default VERSION is the tag of the commit. With REQUIRE=all, a missing tool is an error;
# otherwise, the steps that require it are skipped. PUSH=REGISTRY/PREFIX
# pushes the images.
.PHONY: packages
packages: $(GORELEASER)/goreleaser ## Create a release in dist/: archives, packages, checksums, signatures, mirror (docs/releasing.md).
	@go run ./internal/dev/release/maker -goreleaser $(GORELEASER)/goreleaser -cache $(CACHE) \
		-dist '$(or $(DIST),dist)' -mirror '$(MIRROR)' -platforms '$(PLATFORM)' -home '$(RELEASE_HOME)' \
		-version '$(if $(filter-out file,$(origin VERSION)),$(VERSION))' \
		-key '$(RELEASE_KEY_FILE)' -trust '$(RELEASE_TRUST_FILE)' -gpg-key '$(GPG_KEY_FILE)' -push '$(PUSH)' $(if $(filter all,$(REQUIRE)),-require-all)

.PHONY: changelog
changelog: ## Move the notes in changes into CHANGELOG.md, for the release VERSION=v1.2.3.
	@go run ./internal/dev/release/changes/changelog $(if $(filter-out file,$(origin VERSION)),$(VERSION))

# The modules of tools and of the evaluator are pinned separately.
.PHONY: outdated
outdated: ## List the modules that have a newer version. It changes nothing.
	@for module in . $(EVALUATOR) $$(git ls-files 'internal/dev/tools/*/go.mod' | xargs -n1 dirname); do echo "$$module:"; (cd $$module && \
		go list -m -f '{{if not (or .Main .Indirect)}}{{.Path}}{{end}}' all | grep . | \
		xargs -r go list -e -m -u -f '{{with .Update}}  {{$$.Path}} {{$$.Version}}, newest {{.Version}}{{end}}' | grep . || true); done

.PHONY: bench
bench: ## Run the benchmarks (about an hour and a half; ONLY=queue,burst runs some of them).
	@go run ./internal/dev/bench $(if $(ONLY),-only $(ONLY))

# The fuzz tests run one after the other, because each uses all processors.
.PHONY: fuzz
fuzz: ## Fuzz every route and every decoder, FUZZTIME (1m) each.
	WORKFLOW_FUZZ_TIME=$(or $(FUZZTIME),1m) go test -count=1 -timeout=0 -run '^TestOddRequests$$' ./internal/server/api
	@set -e; grep -rl --include='*_test.go' '^func Fuzz' internal cmd | sort | while read -r file; do \
		for name in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/p' $$file); do \
			echo "fuzzing $$name of $$(dirname $$file)"; \
			go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(or $(FUZZTIME),1m) ./$$(dirname $$file); \
		done; done

.PHONY: e2e
e2e: ## Run the end-to-end tests with real timers and at full scale.
	@WORKFLOW_E2E_FULL=1 go run ./internal/dev/lab/tiers

.PHONY: reliability
reliability: ## Run the fault matrix and write its table in docs/faults.md.
	@records=$$(mktemp -d) && trap 'rm -rf "$$records"' EXIT && export WORKFLOW_FAULT_RECORDS=$$records && \
		go test -count=1 -timeout 60m -parallel 6 -run '^Test(Fault|EngineFault|ClusterFault|ClusterNodeFault)' ./internal/dev/e2e/faults && \
		go test -count=1 -run '^TestFaultTable$$' ./internal/dev/e2e/faults -update

.PHONY: clean
clean: ## Delete what the targets built in the repository.
	rm -rf bin dist
