# How a library, a unit-test binary and a program of ours are declared.
include_guard()
include(cmake/joined.cmake)
include(cmake/precompiled.cmake)

# Tests run once: what compiles fastest wins. Undefined behaviour is looked for in what they test.
set(FLYT_TEST_OPTIONS -O0)
# The same for what is not on the way of a call: command lines, messages, the control plane.
set(FLYT_UNHURRIED_OPTIONS -O1)
if(FLYT_SANITIZE)
  list(APPEND FLYT_TEST_OPTIONS -fno-sanitize=undefined)
  set(FLYT_UNHURRIED_OPTIONS -O0)
endif()

# Whether this build runs every test. What shows the same of the optimised code is not run again:
# tested in both builds are the interpreter's results, shared memory, kills and faults at full
# speed, and whole programs. FLYT_UNIT_TESTS adds the rest.
set(FLYT_TESTS_EVERYTHING OFF)
if(FLYT_SANITIZE OR FLYT_UNIT_TESTS)
  set(FLYT_TESTS_EVERYTHING ON)
endif()
# Whether this build runs what ASan makes very slow: the same calls over one transport after the
# other, managers killed at each step of their work.
set(FLYT_TESTS_AT_LENGTH ON)
if(FLYT_SANITIZE MATCHES "address")
  set(FLYT_TESTS_AT_LENGTH OFF)
endif()

# Compile options of everything that the client library contains: it is a guest in other
# people's processes, so it throws nothing and needs no type information.
set(FLYT_GUEST_OPTIONS
  $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions> $<$<COMPILE_LANGUAGE:CXX>:-fno-rtti>)

# flyt_library(NAME [GUEST] SOURCES a.cc ... [USES flyt_base ...] [HEADERS client/call.h ...]
#   [AFRESH b.cc ...])
# HEADERS: what nearly all of its sources include, which is parsed once. AFRESH: sources that have
# names of others before them, as in joined.cmake.
function(flyt_library name)
  cmake_parse_arguments(ARG "GUEST" "" "SOURCES;USES;HEADERS;AFRESH" ${ARGN})
  flyt_join(sources ${name} SOURCES ${ARG_SOURCES} AFRESH ${ARG_AFRESH})
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${ARG_USES} Threads::Threads)
  if(ARG_GUEST)
    target_compile_options(${name} PRIVATE ${FLYT_GUEST_OPTIONS})
  endif()
  if(ARG_HEADERS)
    flyt_own_headers(${name} ${ARG_HEADERS})
  elseif(ARG_GUEST)
    flyt_reuse_headers(${name} ${FLYT_HEADERS_PREFIX}guest ${FLYT_GUEST_OPTIONS})
  else()
    flyt_reuse_headers(${name} ${FLYT_HEADERS_PREFIX}library)
  endif()
endfunction()

# flyt_same_in_every_build(): for a folder of programs that look at Flyt from outside. They are
# compiled alike whatever the preset, so that the second one finds them in the compiler's cache;
# what they look at is compiled as the preset says. ThreadSanitizer has to see both sides.
macro(flyt_same_in_every_build)
  if(NOT FLYT_SANITIZE MATCHES "thread")
    set(FLYT_TESTS_FROM_OUTSIDE ON)
    set(CMAKE_CXX_FLAGS_RELEASE "-O0 -g1")
    set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELEASE}")
    get_directory_property(options COMPILE_OPTIONS)
    list(FILTER options EXCLUDE REGEX "sanitize|omit-frame-pointer|-sections")
    set_directory_properties(PROPERTIES COMPILE_OPTIONS "${options}")
  endif()
endmacro()

# flyt_test_program(TARGET): compiled as tests are.
function(flyt_test_program target)
  find_package(GTest REQUIRED)
  target_link_libraries(${target} PRIVATE GTest::gtest)
  if(FLYT_TESTS_FROM_OUTSIDE)
    flyt_reuse_headers(${target} outside_test)
  else()
    target_compile_options(${target} PRIVATE ${FLYT_TEST_OPTIONS})
    flyt_reuse_headers(${target} test ${FLYT_TEST_OPTIONS})
  endif()
endfunction()

# flyt_test(NAME [AT_LENGTH] SOURCES a_test.cc ... [USES ...] [LABELS ...] [AFRESH ...]): one gtest
# binary, one ctest entry; tests say what they prove in their own names. Unit tests stand beside the
# sources. AT_LENGTH: for builds without ASan, whether they have unit tests or not.
function(flyt_test name)
  cmake_parse_arguments(ARG "AT_LENGTH;BUNDLED" "TIMEOUT"
    "SOURCES;USES;LABELS;ARGS;ENVIRONMENT;AFRESH" ${ARGN})
  string(FIND "${CMAKE_CURRENT_SOURCE_DIR}" "${CMAKE_SOURCE_DIR}/tests" whole)
  if(ARG_AT_LENGTH)
    set(wanted ${FLYT_TESTS_AT_LENGTH})
  elseif(whole EQUAL -1)
    set(wanted ${FLYT_UNIT_TESTS})
  else()
    set(wanted ON)
  endif()
  if(NOT FLYT_TESTS OR NOT wanted)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 1200)
  endif()
  find_package(GTest REQUIRED)
  flyt_join(sources ${name} SOURCES ${ARG_SOURCES} AFRESH ${ARG_AFRESH})
  add_executable(${name} ${sources})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
  flyt_test_program(${name})
  target_link_libraries(${name} PRIVATE ${ARG_USES} GTest::gtest GTest::gmock GTest::gtest_main
    Threads::Threads)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(ARG_BUNDLED AND NOT FLYT_SANITIZE)
    target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  if(ARG_BUNDLED AND NOT FLYT_TESTS_EVERYTHING)
    return()
  endif()
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
    ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()

# flyt_program(NAME SOURCES main.cc USES libraries ... [AFRESH ...]): a program in bin/, free of the
# C++ runtime of the machine it lands on.
function(flyt_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;AFRESH" ${ARGN})
  flyt_join(sources ${name} SOURCES ${ARG_SOURCES} AFRESH ${ARG_AFRESH})
  add_executable(${name} ${sources})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE ${ARG_USES} Threads::Threads ${CMAKE_DL_LIBS})
  if(NOT FLYT_SANITIZE)
    target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
endfunction()

# flyt_fuzz(NAME SOURCES a_fuzz.cc USES libraries): with FLYT_FUZZ a libFuzzer program; otherwise
# the same entry point linked with a small main (tests/fuzz/replay_main.cc) that replays the seeds
# and random mutations of them, so that every test run smokes it.
# Seeds: tests/fuzz/seeds/NAME/ and what the generator wrote for NAME.
function(flyt_fuzz name)
  if(NOT FLYT_UNIT_TESTS OR NOT FLYT_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;USES" ${ARGN})
  set(seeds)
  foreach(folder ${CMAKE_SOURCE_DIR}/tests/fuzz/seeds/${name}
      ${CMAKE_BINARY_DIR}/generated/seeds/${name})
    if(EXISTS ${folder})
      list(APPEND seeds ${folder})
    endif()
  endforeach()
  if(FLYT_FUZZ)
    # libFuzzer writes what it finds into the first folder.
    set(corpus ${CMAKE_BINARY_DIR}/corpus/${name})
    file(MAKE_DIRECTORY ${corpus})
    add_executable(${name} ${ARG_SOURCES})
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_test(NAME ${name} COMMAND ${name} -runs=2000 -max_total_time=20 -rss_limit_mb=4096
      ${corpus} ${seeds})
  else()
    add_executable(${name} ${ARG_SOURCES} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.cc)
    # Unlike tests with all sanitizers: templates of ours are compiled in it.
    target_compile_options(${name} PRIVATE -O0)
    add_test(NAME ${name} COMMAND ${name} ${seeds})
  endif()
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_USES} Threads::Threads)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT 600)
  if(NOT TARGET flyt_fuzz_programs)
    add_custom_target(flyt_fuzz_programs)
  endif()
  add_dependencies(flyt_fuzz_programs ${name})
endfunction()
