# gradus_flags: how everything in this project is compiled. Never exported.

include(CheckCCompilerFlag)
include(CheckCSourceCompiles)

add_library(gradus_flags INTERFACE)
target_compile_features(gradus_flags INTERFACE c_std_11)

function(gradus_c_flags)
    foreach(flag IN LISTS ARGN)
        string(MAKE_C_IDENTIFIER "GRADUS_C${flag}" known)
        check_c_compiler_flag(${flag} ${known})
        if(${known})
            target_compile_options(gradus_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:${flag}>)
        endif()
    endforeach()
endfunction()

gradus_c_flags(-Wall -Wextra -Wpedantic -Wconversion)
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    gradus_c_flags(-Wno-pass-failed) # a simd loop that clang leaves as it is is slower, not wrong
    gradus_c_flags(-Wno-enum-float-conversion) # enum { N = 8 } is an int with a name
endif()
if(GRADUS_WERROR)
    gradus_c_flags(-Werror)
endif()

if(APPLE) # what is not POSIX's is declared, whatever a file asks for
    target_compile_definitions(gradus_flags INTERFACE _DARWIN_C_SOURCE)
endif()
if(MINGW)
    # Windows 10; printf as in standard C, also for GCC's check of formats.
    target_compile_definitions(gradus_flags INTERFACE _WIN32_WINNT=0x0A00 __USE_MINGW_ANSI_STDIO=1)
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
        target_compile_definitions(gradus_flags INTERFACE GD_PRINTF_DIALECT=gnu_printf)
    endif()
    # Its isfinite() converts to float in a branch that is not taken.
    gradus_c_flags(-Wno-float-conversion)
    # GCC's stack is aligned to 16 bytes there, and its moves of longer vectors expect theirs (bug
    # 54412): the assembler makes them unaligned ones.
    gradus_c_flags(-Wa,-muse-unaligned-vector-move)
endif()

# The same for nvcc and the compiler behind it.
set(gradus_cuda_flags -Xcompiler=-Wall,-Wextra)
if(GRADUS_WERROR)
    list(APPEND gradus_cuda_flags --Werror=all-warnings)
endif()

# A stack of 128 KiB is enough for any thread, of which OpenBLAS's own data take 60: no frame of the
# library or of a program has more than 52.
add_library(gradus_small_frames INTERFACE)
check_c_compiler_flag(-Wstack-usage=53248 GRADUS_C_STACK_USAGE)
if(GRADUS_C_STACK_USAGE AND NOT GRADUS_SANITIZE AND NOT GRADUS_FUZZ)
    target_compile_options(gradus_small_frames
                           INTERFACE $<$<COMPILE_LANGUAGE:C>:-Wstack-usage=53248>)
endif()

# Allows fused multiply-adds, and ignores errno and floating-point traps. NaN, infinities and the
# order of operations are preserved: this is not -ffast-math.
gradus_c_flags(-ffp-contract=fast -fno-math-errno -fno-trapping-math)
# GCC 12 with SVE reads the sums of a simd loop before it stores them. NEON is in every build for ARM.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set(gradus_native OFF)
else()
    set(gradus_native ${GRADUS_NATIVE})
endif()
if(gradus_native)
    gradus_c_flags(-march=native)
    # Where there is AVX-512, use its whole width: layer_norm runs in 4/5 of the time.
    gradus_c_flags(-mprefer-vector-width=512)
endif()

# Without a build type, as a project around this one may leave it, CMake would not optimize.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    get_directory_property(inherited COMPILE_OPTIONS)
    foreach(language IN ITEMS C CUDA)
        if(NOT "${CMAKE_${language}_FLAGS};${inherited}" MATCHES "(^|[ ;])-O")
            target_compile_options(gradus_flags INTERFACE $<$<COMPILE_LANGUAGE:${language}>:-O2>)
        endif()
    endforeach()
endif()

# What -flto in CMAKE_C_FLAGS leaves for the linker knows nothing of what is made local in the static
# library (library.cmake).
gradus_c_flags(-fno-lto)

if(OpenMP_C_FOUND)
    target_link_libraries(gradus_flags INTERFACE OpenMP::OpenMP_C)
else()
    # The simd pragmas need no library.
    gradus_c_flags(-fopenmp-simd -Wno-unknown-pragmas -Wno-unused-variable -Wno-unused-parameter)
endif()

if(GRADUS_FUZZ)
    set(GRADUS_SANITIZE fuzzer-no-link,address,undefined)
endif()
if(GRADUS_SANITIZE)
    set(CMAKE_REQUIRED_LINK_OPTIONS -fsanitize=${GRADUS_SANITIZE})
    string(MAKE_C_IDENTIFIER "gradus_sanitizes_${GRADUS_SANITIZE}" can_sanitize)
    check_c_compiler_flag(-fsanitize=${GRADUS_SANITIZE} ${can_sanitize})
    unset(CMAKE_REQUIRED_LINK_OPTIONS)
    if(NOT ${can_sanitize})
        message(FATAL_ERROR "GRADUS_SANITIZE is \"${GRADUS_SANITIZE}\", wanted sanitizers that "
                            "${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION} has, e.g. address")
    endif()
    # gcc 12 copies structs by aligned instructions of 64 bytes, for which AddressSanitizer's stack
    # with detect_stack_use_after_return is not aligned (gcc bug 110027).
    gradus_c_flags(-mmove-max=256 -mstore-max=256)
    target_compile_options(
        gradus_flags INTERFACE -fsanitize=${GRADUS_SANITIZE} -fno-sanitize-recover=all
                               -fno-omit-frame-pointer $<$<CONFIG:Release,MinSizeRel>:-g>)
    target_link_options(gradus_flags INTERFACE -fsanitize=${GRADUS_SANITIZE})
endif()

# The programs parse files of strangers. Sanitizers check more; glibc's checks
# need an optimizer.
set(gradus_link_hardened)
if(GRADUS_HARDENING AND CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF" AND NOT GRADUS_SANITIZE)
    gradus_c_flags(-fstack-protector-strong)
    # What a distribution's flags or compiler have, 3 perhaps, stays.
    set(CMAKE_REQUIRED_FLAGS -O2)
    check_c_source_compiles(
        "#ifndef _FORTIFY_SOURCE\n#error none\n#endif\nint main(void) { return 0; }"
        gradus_is_fortified)
    unset(CMAKE_REQUIRED_FLAGS)
    if(NOT gradus_is_fortified)
        target_compile_options(
            gradus_flags
            INTERFACE "$<$<AND:$<COMPILE_LANGUAGE:C>,$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
    endif()
    set(gradus_link_hardened -Wl,-z,relro,-z,now)
    target_link_options(gradus_flags INTERFACE ${gradus_link_hardened})
endif()
