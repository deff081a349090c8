# CTest (CMake 3.29 or later): each test runs under `lockscope run`. Preload it when the build tree is made:
#   cmake -C ctest.cmake -S . -B build && cmake --build build && ctest --test-dir build --output-on-failure
# A test that deadlocks fails within seconds, the report stands in its output and in build/hangs, and the others go on.
# CMake puts the launcher before tests whose command is an executable target, `add_test(NAME n COMMAND target)`, and before no
# others: write `add_test(NAME n COMMAND lockscope run -- python test.py)` there.
#
# What is no deadlock ends after 20 minutes, with a report, before CTest's own limit of 25 ends it without one. For tests with
# a TIMEOUT of their own let CTest ask first: TIMEOUT_SIGNAL_NAME SIGTERM and TIMEOUT_SIGNAL_GRACE_PERIOD 10.
set(CMAKE_TEST_LAUNCHER
    "lockscope;run;--timeout;20m;--report-dir;${CMAKE_BINARY_DIR}/hangs;--"
    CACHE STRING "Runs the tests")
