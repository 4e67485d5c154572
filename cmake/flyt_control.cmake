# The control plane's libraries, and its protobuf messages. Nothing of the data plane links them.
include_guard()

find_package(PkgConfig REQUIRED)
pkg_check_modules(FLYT_SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(FLYT_TOML REQUIRED IMPORTED_TARGET tomlplusplus)
if(FLYT_MONGODB)
  pkg_check_modules(FLYT_MONGOC REQUIRED IMPORTED_TARGET libmongoc-1.0)
endif()
# Not by pkg-config, which reads some hundred files for them, seconds each time.
find_path(FLYT_GRPC_HEADERS grpcpp/grpcpp.h REQUIRED)
find_path(FLYT_PROTOBUF_HEADERS google/protobuf/message.h REQUIRED)
find_program(FLYT_PROTOC protoc REQUIRED)
find_program(FLYT_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)

# flyt_proto(TARGET api/control/NAME.proto [OTHER ...]): a library of its messages, services and
# stubs; the headers are "control/NAME.pb.h" and "control/NAME.grpc.pb.h". OTHER: targets of the
# files that it imports.
function(flyt_proto target file)
  get_filename_component(name ${file} NAME_WE)
  set(out ${CMAKE_BINARY_DIR}/proto)
  set(made ${out}/control/${name}.pb.cc ${out}/control/${name}.grpc.pb.cc)
  file(MAKE_DIRECTORY ${out}/control)
  add_custom_command(
    OUTPUT ${made} ${out}/control/${name}.pb.h ${out}/control/${name}.grpc.pb.h
    COMMAND ${FLYT_PROTOC} -I ${CMAKE_SOURCE_DIR}/api --cpp_out=${out} --grpc_out=${out}
      --plugin=protoc-gen-grpc=${FLYT_GRPC_PLUGIN} ${CMAKE_SOURCE_DIR}/${file}
    DEPENDS ${CMAKE_SOURCE_DIR}/${file}
    COMMENT "Generating code from ${file}"
    VERBATIM)
  # One file includes both: reading protobuf's and gRPC's headers is most of the work.
  set(joined ${out}/${name}.cc)
  file(CONFIGURE OUTPUT ${joined}
    CONTENT "#include \"control/${name}.pb.cc\"\n#include \"control/${name}.grpc.pb.cc\"\n")
  set_source_files_properties(${made} PROPERTIES HEADER_FILE_ONLY ON)
  set_source_files_properties(${joined} PROPERTIES OBJECT_DEPENDS "${made}")
  add_library(${target} STATIC ${joined} ${made})
  if(NOT TARGET flyt_messages)
    add_custom_target(flyt_messages)
  endif()
  add_dependencies(flyt_messages ${target})
  target_include_directories(${target} SYSTEM PUBLIC ${out})
  target_compile_options(${target} PRIVATE -w)
  if(FLYT_SANITIZE MATCHES "thread")
    target_compile_options(${target} PRIVATE -fno-sanitize=all)
  endif()
  # What pkg-config lists beside them are the libraries behind these.
  target_link_libraries(${target} PUBLIC ${ARGN} grpc++ grpc gpr protobuf absl_synchronization
    Threads::Threads)
endfunction()

# flyt_control_program(NAME SOURCES main.cc USES libraries ...): a program in bin/ that needs the
# distribution's libraries, and so its C++ runtime. A bundle has copies in lib/control, which
# is nowhere else. It is RPATH: RUNPATH would find these, but not what they need in turn. And it is
# that of installations, since CMake ends others in a colon, which means the current folder.
function(flyt_control_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES" ${ARGN})
  flyt_join(sources ${name} SOURCES ${ARG_SOURCES})
  add_executable(${name} ${sources})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(${name} PRIVATE ${FLYT_UNHURRIED_OPTIONS})
  set_target_properties(${name} PROPERTIES BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$ORIGIN/../lib/control")
  target_link_options(${name} PRIVATE LINKER:--disable-new-dtags)
  target_link_libraries(${name} PRIVATE ${ARG_USES} Threads::Threads ${CMAKE_DL_LIBS})
endfunction()
