# Toolchain file: the library as WebAssembly, with clang, lld and wasi-libc.
#
#   cmake -B build/wasm --toolchain cmake/wasm.cmake -DGRADUS_TESTS=OFF ...   (see scripts/study)
#
# WASI is the system interface that the C library needs; study/page/wasi.js implements it for node
# and for pages.

set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(CMAKE_C_COMPILER clang)
set(CMAKE_C_COMPILER_TARGET wasm32-wasi)
set(CMAKE_EXECUTABLE_SUFFIX_C .wasm)
set(CMAKE_FIND_ROOT_PATH /usr/lib/wasm32-wasi)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR node ${CMAKE_CURRENT_LIST_DIR}/../study/run_wasm.js)

# wasi-libc emulates anonymous mmap and getpid if asked. __i386__: Random123 checks the processor,
# and does not know this one, which also has 32-bit pointers. There is no vector math library: loops
# with an exp stay scalar, about which clang would warn.
set(CMAKE_C_FLAGS_INIT
    "-msimd128 -D_WASI_EMULATED_MMAN -D_WASI_EMULATED_GETPID -D__i386__ -Wno-pass-failed")
# The default stack of 64 KiB has no guard: what does not fit overwrites the globals.
set(CMAKE_EXE_LINKER_FLAGS_INIT
    "-lwasi-emulated-mman -lwasi-emulated-getpid -Wl,-z,stack-size=1048576,--strip-all")

# Random123 is only headers, those of the build machine. The rest of /usr/include is not for this
# target, so they are included through a link.
set(GRADUS_RANDOM123_INCLUDE ${CMAKE_BINARY_DIR}/headers)
if(EXISTS /usr/include/Random123)
    file(MAKE_DIRECTORY ${GRADUS_RANDOM123_INCLUDE})
    file(CREATE_LINK /usr/include/Random123 ${GRADUS_RANDOM123_INCLUDE}/Random123 SYMBOLIC)
endif()
