# The options of docs/building.md, each with what it may be.

# An option with a fixed set of values. ON and OFF may be written in any of CMake's ways.
function(gradus_choice name default description)
    set(type STRING)
    if("${ARGN}" STREQUAL "ON;OFF")
        set(type BOOL)
    endif()
    set(${name} ${default} CACHE ${type} "${description}")
    set_property(CACHE ${name} PROPERTY STRINGS ${ARGN})
    string(TOUPPER "${${name}}" value)
    if(value MATCHES "^(1|YES|TRUE|Y)$")
        set(value ON)
    elseif(value MATCHES "^(0|NO|FALSE|N|IGNORE|NOTFOUND|.*-NOTFOUND|)$")
        set(value OFF)
    endif()
    if(NOT value IN_LIST ARGN)
        list(JOIN ARGN ", " wanted)
        string(REGEX REPLACE ", ([^,]*)$" " or \\1" wanted "${wanted}")
        message(FATAL_ERROR "${name} is \"${${name}}\", wanted ${wanted}")
    endif()
    set(${name} ${value} PARENT_SCOPE)
endfunction()

function(gradus_option name description default)
    gradus_choice(${name} ${default} "${description}" ON OFF)
    set(${name} ${${name}} PARENT_SCOPE)
endfunction()

gradus_option(GRADUS_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
gradus_option(GRADUS_BENCH "Build gradus-bench" ${PROJECT_IS_TOP_LEVEL})
gradus_option(GRADUS_TRAIN "Build gradus-train, gradus-sample and gradus-eval"
              ${PROJECT_IS_TOP_LEVEL})
gradus_option(GRADUS_EXAMPLES "Build the examples of the documentation" ${PROJECT_IS_TOP_LEVEL})
gradus_option(GRADUS_INSTALL "Make install rules" ${PROJECT_IS_TOP_LEVEL})
gradus_option(GRADUS_NATIVE "Compile for the processor of this machine" ON)
gradus_option(GRADUS_WERROR "Treat warnings as errors" OFF)
gradus_option(GRADUS_HARDENING "Stack protector, checks of the C library, read-only relocations" ON)
gradus_option(GRADUS_OPENMP "Use several threads, by OpenMP, if the compiler has it" ON)
gradus_option(GRADUS_STUDY "Build the study's programs, as scripts/study does" OFF)
gradus_option(GRADUS_FUZZ "Build the libFuzzer targets; needs clang" OFF)
gradus_choice(GRADUS_JANSSON AUTO
    "Read and write safetensors files, with jansson: AUTO (if it is found), ON or OFF" AUTO ON OFF)
gradus_choice(GRADUS_XXHASH AUTO
    "Checksums in checkpoints, with xxHash: AUTO (if it is found), ON or OFF" AUTO ON OFF)
gradus_choice(GRADUS_CUDA AUTO
    "Build for CUDA: AUTO (where nvcc is found), ON, OFF, or KERNELS (kernels.h alone)"
    AUTO ON OFF KERNELS)
gradus_choice(GRADUS_NCCL AUTO
    "Train on several GPUs, with NCCL: AUTO (if it is found, in a build for CUDA), ON or OFF"
    AUTO ON OFF)
set(blas OpenBLAS)
if(APPLE)
    set(blas Apple) # Accelerate
endif()
set(GRADUS_BLAS ${blas} CACHE STRING
    "Which CBLAS to use: a vendor's name as in CMake's FindBLAS; OFF: none")
if(GRADUS_BLAS MATCHES "^(1|[Oo][Nn]|[Yy]([Ee][Ss])?|[Tt][Rr][Uu][Ee])$")
    message(FATAL_ERROR "GRADUS_BLAS is \"${GRADUS_BLAS}\", wanted a vendor's name, such as "
                        "OpenBLAS, or OFF")
endif()
set(GRADUS_SANITIZE "" CACHE STRING "Sanitizers to build with, e.g. address,leak or undefined")

# A misspelt type would be built without optimization.
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CONFIGURATION_TYPES)
    if(NOT CMAKE_BUILD_TYPE)
        set(CMAKE_BUILD_TYPE Release
            CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
    endif()
    string(TOUPPER "CMAKE_C_FLAGS_${CMAKE_BUILD_TYPE}" flags)
    set(known "_(DEBUG|RELEASE|RELWITHDEBINFO|MINSIZEREL|NONE)$")
    if(NOT flags MATCHES "${known}" AND "${${flags}}" STREQUAL "")
        message(FATAL_ERROR "CMAKE_BUILD_TYPE is \"${CMAKE_BUILD_TYPE}\", wanted Debug, Release, "
                            "RelWithDebInfo, MinSizeRel, or a type of yours with ${flags}")
    endif()
endif()
