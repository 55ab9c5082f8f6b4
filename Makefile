# SPDX-License-Identifier: Apache-2.0
# The front door; CMake does the work. `make help` lists what there is.

PRESET ?= release
JOBS ?= $(shell nproc)
# The presets release and ci build in build/, every other one in a folder of its own.
BUILD = $(if $(filter release ci,$(PRESET)),build,build-$(PRESET))

# make check-one: which instance. A kernel without a head_dim (matmul) is named without one.
KERNEL ?= flash_forward
ARCH ?= sm_89
DTYPE ?= f16
CONFIG ?=
attention_row = TESSERA_KERNEL($(KERNEL),.*, attention,
HEAD_DIM ?= $(shell grep -q '$(attention_row)' kernels/registry.def && echo 64)

# CMake looks for nvcc on PATH only.
export PATH := $(PATH):/usr/local/cuda/bin
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)

.PHONY: help build demo test quick configure check-one format clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12
	@echo 'PRESET=release|debug|asan|ubsan|tsan|cuda|cpu|ci picks a CMake preset; JOBS=N the number of jobs.'

configure:
	@.ci/install
	@cmake --preset $(PRESET)

build: configure ## everything: installs what is missing, compiles the CUDA part where there is nvcc
	@cmake --build $(BUILD)

demo: configure ## the tutorial's first kernel in the emulator, on three archs, and its two famous bugs
	@cmake --build $(BUILD) --target tessera_cli tessera_sim_modules
	@$(BUILD)/tessera demo

test: ## build, then all tests (those that need a GPU are skipped where there is none)
	@.ci/install --python
	@$(MAKE) --no-print-directory build
	@ctest --preset $(PRESET) -j $(JOBS) --output-junit tests.xml; status=$$?; \
	  .ci/skipped $(BUILD)/tests.xml; exit $$status

quick: ## build, then the quick tests alone
	@.ci/install --python
	@$(MAKE) --no-print-directory build
	@ctest --preset $(PRESET) -j $(JOBS) -L '^quick$$'

# In a build folder of its own, without the CUDA part, so that an edit of a kernel's header rebuilds one file.
check-one: ## one emulator instance: KERNEL=flash_forward ARCH=sm_89 DTYPE=f16 HEAD_DIM=64 [CONFIG=] [ARGS=]
	@.ci/install
	@cmake --preset one >/dev/null \
	  -DTESSERA_ONLY=$(KERNEL)/$(ARCH)/$(DTYPE)$(if $(HEAD_DIM),/d$(HEAD_DIM))$(if $(CONFIG),/$(CONFIG))
	@cmake --build --preset one
	@build-one/tessera check $(KERNEL) --arch $(ARCH) --dtype $(DTYPE) \
	  $(if $(HEAD_DIM),--head-dim $(HEAD_DIM)) $(if $(CONFIG),--config $(CONFIG)) $(ARGS)

format: ## clang-format over the C++ sources
	@git ls-files '*.h' '*.cc' '*.cu' | xargs clang-format -i

clean: ## remove the build folders; .venv stays
	@rm -rf build build-*
