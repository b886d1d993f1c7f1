# Finds what the library needs: a CBLAS, Random123's header, and, if installed, jansson, xxHash,
# OpenMP, CUDA and NCCL.

# Stops, and names the package of what is missing.
function(gradus_missing what debian_package)
    set(how "On Debian or Ubuntu: apt install ${debian_package}")
    if(APPLE) # Homebrew's names are the same without lib and -dev
        string(REGEX REPLACE "^lib|-dev$" "" package ${debian_package})
        set(how "With Homebrew: brew install ${package}")
    endif()
    message(FATAL_ERROR "gradus needs ${what}. ${how}")
endfunction()

# ---- BLAS: linked by the library alone, called from one thread at a time --------------------

if(GRADUS_BLAS)
    if(NOT DEFINED BLA_VENDOR)
        set(BLA_VENDOR ${GRADUS_BLAS})
    endif()
    find_package(BLAS QUIET)
    if(NOT BLAS_FOUND)
        gradus_missing("a BLAS library (GRADUS_BLAS is ${GRADUS_BLAS}; OFF does without)"
                       libopenblas-dev)
    endif()

    if(BLA_VENDOR STREQUAL "Apple" AND NOT GRADUS_CBLAS_INCLUDE)
        # Its cblas.h lies in a framework inside the framework, which only this header reaches.
        file(WRITE ${PROJECT_BINARY_DIR}/accelerate/cblas.h
             "#define ACCELERATE_NEW_LAPACK\n#include <Accelerate/Accelerate.h>\n")
        set(GRADUS_CBLAS_INCLUDE ${PROJECT_BINARY_DIR}/accelerate CACHE PATH "")
    endif()
    find_path(GRADUS_CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas openblas-pthread openblas-openmp)
    mark_as_advanced(GRADUS_CBLAS_INCLUDE)
    if(NOT GRADUS_CBLAS_INCLUDE)
        gradus_missing("the header cblas.h" libopenblas-dev)
    endif()

    include(CheckSymbolExists)
    include(CMakePushCheckState)
    cmake_push_check_state(RESET)
    set(CMAKE_REQUIRED_LIBRARIES BLAS::BLAS)
    set(CMAKE_REQUIRED_INCLUDES ${GRADUS_CBLAS_INCLUDE})
    check_symbol_exists(cblas_sgemm cblas.h GRADUS_HAVE_CBLAS)
    check_symbol_exists(openblas_set_num_threads cblas.h GRADUS_HAVE_OPENBLAS)
    cmake_pop_check_state()
    if(NOT GRADUS_HAVE_CBLAS)
        gradus_missing("a BLAS library with the C interface, CBLAS" libopenblas-dev)
    endif()
endif()

# ---- Random123: headers only --------------------------------------------------------------------

find_path(GRADUS_RANDOM123_INCLUDE Random123/philox.h)
mark_as_advanced(GRADUS_RANDOM123_INCLUDE)
if(NOT GRADUS_RANDOM123_INCLUDE)
    gradus_missing("the header Random123/philox.h" librandom123-dev)
endif()

# ---- jansson: JSON, for safetensors files -------------------------------------------------------

if(GRADUS_JANSSON)
    find_path(GRADUS_JANSSON_INCLUDE jansson.h)
    find_library(GRADUS_JANSSON_LIBRARY jansson)
    mark_as_advanced(GRADUS_JANSSON_INCLUDE GRADUS_JANSSON_LIBRARY)
endif()
set(gradus_jansson OFF)
if(GRADUS_JANSSON AND GRADUS_JANSSON_INCLUDE AND GRADUS_JANSSON_LIBRARY)
    set(gradus_jansson ON)
elseif(GRADUS_JANSSON STREQUAL "AUTO")
    message(STATUS "No jansson: gradus will neither read nor write safetensors files. "
                   "On Debian or Ubuntu: apt install libjansson-dev")
elseif(GRADUS_JANSSON)
    gradus_missing("jansson (GRADUS_JANSSON is ${GRADUS_JANSSON}; OFF does without)" libjansson-dev)
endif()

# ---- xxHash: a header only, for the checksums of checkpoints ------------------------------------

if(GRADUS_XXHASH)
    find_path(GRADUS_XXHASH_INCLUDE xxhash.h)
    mark_as_advanced(GRADUS_XXHASH_INCLUDE)
endif()
set(gradus_xxhash OFF)
if(GRADUS_XXHASH AND GRADUS_XXHASH_INCLUDE)
    set(gradus_xxhash ON)
elseif(GRADUS_XXHASH STREQUAL "AUTO")
    message(STATUS "No xxHash: checkpoints will have no checksums. "
                   "On Debian or Ubuntu: apt install libxxhash-dev")
elseif(GRADUS_XXHASH)
    gradus_missing("the header xxhash.h (GRADUS_XXHASH is ${GRADUS_XXHASH}; OFF does without)"
                   libxxhash-dev)
endif()

# ---- OpenMP -------------------------------------------------------------------------------------

if(GRADUS_OPENMP)
    if(APPLE AND NOT DEFINED OpenMP_ROOT) # where Homebrew has libomp, and no compiler looks
        set(OpenMP_ROOT /opt/homebrew/opt/libomp /usr/local/opt/libomp)
    endif()
    find_package(OpenMP QUIET COMPONENTS C)
    if(NOT OpenMP_C_FOUND)
        set(how "")
        if(APPLE)
            set(how ". With Homebrew: brew install libomp")
        endif()
        message(STATUS "No OpenMP for this compiler: gradus will use one thread${how}")
    endif()
endif()

# ---- CUDA ---------------------------------------------------------------------------------------

set(gradus_cuda OFF)
if(GRADUS_CUDA STREQUAL "AUTO")
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
        set(gradus_cuda ON)
    endif()
elseif(GRADUS_CUDA)
    set(gradus_cuda ${GRADUS_CUDA}) # ON or KERNELS
endif()
if(gradus_cuda)
    # For the GPUs of this machine; without one, for all: what compute capability 7.5 or 8.0 can do
    # as PTX, which the driver compiles for any newer GPU, and Hopper's own instructions.
    set(architectures_given ${CMAKE_CUDA_ARCHITECTURES})
    if(NOT architectures_given)
        set(CMAKE_CUDA_ARCHITECTURES 75-virtual 80-virtual 90)
    endif()
    enable_language(CUDA)
    if(architectures_given STREQUAL "native" OR NOT architectures_given)
        if(CMAKE_CUDA_ARCHITECTURES_NATIVE)
            set(CMAKE_CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES_NATIVE})
        elseif(architectures_given)
            message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES is native, but this machine has no GPU that "
                                "CUDA can use: name an architecture, such as 80, or none")
        endif()
    endif()
    message(STATUS "GPU code for ${CMAKE_CUDA_ARCHITECTURES}")
    find_package(CUDAToolkit REQUIRED)
endif()
message(STATUS "CUDA: ${gradus_cuda}")

# ---- NCCL: several GPUs ---------------------------------------------------------------------------

set(nccl_wanted ${GRADUS_NCCL})
if(GRADUS_NCCL STREQUAL "ON" AND NOT gradus_cuda STREQUAL "ON")
    message(FATAL_ERROR "GRADUS_NCCL is ON in a build without CUDA, wanted GRADUS_CUDA=ON too")
endif()
if(NOT gradus_cuda OR gradus_cuda STREQUAL "KERNELS")
    set(nccl_wanted OFF)
endif()
if(nccl_wanted)
    find_path(GRADUS_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(GRADUS_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
    mark_as_advanced(GRADUS_NCCL_INCLUDE GRADUS_NCCL_LIBRARY)
endif()
set(gradus_nccl OFF)
if(nccl_wanted AND GRADUS_NCCL_INCLUDE AND GRADUS_NCCL_LIBRARY)
    set(gradus_nccl ON)
elseif(nccl_wanted STREQUAL "AUTO")
    message(STATUS "No NCCL: gradus-train will use one GPU. NVIDIA's and Debian's package: "
                   "apt install libnccl-dev")
elseif(nccl_wanted)
    gradus_missing("NCCL (GRADUS_NCCL is ${GRADUS_NCCL}; OFF does without)" libnccl-dev)
endif()
