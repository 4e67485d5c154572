# Flags that hold for every target, ccache and the linker.
find_program(FLYT_CCACHE ccache)
if(FLYT_CCACHE)
  # What one checkout compiled is found again by another: neither its folder nor the folder it is
  # compiled in is part of the key (the prefix map below keeps both out of the objects). What a file
  # includes is known from its last compilation, so that nothing is preprocessed for the key alone.
  # And precompiled headers, which are large, are read for it once, not for each file (INODECACHE).
  # (By env: CMake's own takes longer to start than ccache to find a file.)
  set(FLYT_CCACHE_LAUNCHER env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
    CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1 CCACHE_INODECACHE=1
    CCACHE_SLOPPINESS=pch_defines,time_macros ${FLYT_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${FLYT_CCACHE_LAUNCHER})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FLYT_CCACHE_LAUNCHER})
endif()

add_compile_options(
  -Wall -Wextra -Wpedantic -Werror -Wno-unused-parameter -Wno-missing-field-initializers
  -fno-strict-aliasing -ffp-contract=off
  -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-Wthread-safety -Wno-gnu-zero-variadic-macro-arguments)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 sees overlapping copies in std::string where there are none (its bug 105329).
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  # Precompiled headers are most of the compiler's memory, and live until its end: it looks for
  # garbage later (in KiB).
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=262144>)
endif()
if(FLYT_SANITIZE)
  add_compile_options(-fsanitize=${FLYT_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  # The guest libraries have no type information, which the vptr check would ask for.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=vptr>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND FLYT_SANITIZE MATCHES "undefined")
    # They are an eighth of the compiler's work. A bad pointer is caught without them, by ASan or by
    # the processor; the fuzz build, which is clang's, has them.
    add_compile_options(-fno-sanitize=null,alignment,object-size)
    # A trap, for which ASan prints the stack (ASAN_OPTIONS=handle_sigill=1), in place of a text for
    # each check: these were half of our libraries, and every session's process relocates them.
    add_compile_options(-fsanitize-undefined-trap-on-error)
  endif()
  add_link_options(-fsanitize=${FLYT_SANITIZE})
else()
  # Programs take from a library what they use, however its sources are joined.
  add_compile_options(-ffunction-sections -fdata-sections)
  add_link_options(-Wl,--gc-sections)
endif()

find_program(FLYT_LLD ld.lld)
if(FLYT_LLD)
  add_link_options(-fuse-ld=lld)
endif()
find_package(Threads REQUIRED)
