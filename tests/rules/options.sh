#!/usr/bin/env bash
# Each option of docs/building.md with a fixed set of values takes them, and refuses others in a sentence.
#   tests/rules/options.sh SOURCE_DIR WORK_DIR [CMAKE]
set -euo pipefail
source=$1 work=$2 cmake=${3:-cmake}
rm -rf "$work"
mkdir -p "$work"
cat >"$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(options LANGUAGES NONE)
set(CMAKE_C_FLAGS_MINE "-O1")
set(CMAKE_C_FLAGS_TYPO "") # as CMake itself initializes it
include($source/cmake/options.cmake)
message(STATUS "cuda \${GRADUS_CUDA}, tests \${GRADUS_TESTS}, type \${CMAKE_BUILD_TYPE}")
END

failed=0 project=$work
# says SENTENCE OPTION...
says()
{
    local sentence=$1 said
    shift
    rm -rf "$work/build"
    said=$("$cmake" -S "$project" -B "$work/build" "${@/#/-D}" 2>&1 | tr -s ' \n' ' ') || true
    [[ $said == *"$sentence"* ]] || {
        echo "$*: $said; wanted: $sentence"
        failed=1
    }
}

says 'cuda AUTO, tests ON, type Release'
says 'cuda OFF, tests OFF, type Debug' GRADUS_CUDA=off GRADUS_TESTS=No CMAKE_BUILD_TYPE=Debug
says 'cuda KERNELS, tests ON, type Mine' GRADUS_CUDA=kernels GRADUS_TESTS=1 CMAKE_BUILD_TYPE=Mine
says 'GRADUS_CUDA is "maybe", wanted AUTO, ON, OFF or KERNELS' GRADUS_CUDA=maybe
for name in NCCL JANSSON XXHASH; do
    says "GRADUS_$name is \"KERNELS\", wanted AUTO, ON or OFF" GRADUS_$name=KERNELS
done
for name in TESTS BENCH TRAIN EXAMPLES INSTALL NATIVE WERROR HARDENING OPENMP STUDY FUZZ; do
    says "GRADUS_$name is \"maybe\", wanted ON or OFF" GRADUS_$name=maybe
done
says 'GRADUS_BLAS is "ON", wanted a vendor'"'"'s name' GRADUS_BLAS=ON
says 'CMAKE_BUILD_TYPE is "Typo", wanted Debug, Release, RelWithDebInfo' CMAKE_BUILD_TYPE=Typo
# what a build finds out
project=$source
says 'GRADUS_NCCL is ON in a build without CUDA' GRADUS_NCCL=ON GRADUS_CUDA=OFF
says 'GRADUS_SANITIZE is "adress", wanted sanitizers' GRADUS_SANITIZE=adress GRADUS_CUDA=OFF
exit $failed
