#!/usr/bin/env bash
# Makes libraries that stand in for cuBLASLt, cuRAND and NCCL, for tests of a CUDA build on a machine
# without a GPU: there nothing calls them, and each of some thousand programs would load 800 MB (0.15 s).
# A program that calls one is killed. Prints their folder, for LD_LIBRARY_PATH.
#   stand_ins.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1") folder=$build/stand_ins
mkdir -p "$folder"
programs=("$build"/lib/libgradus.so "$build"/bin/gradus-*)
nm -D --undefined-only "${programs[@]}" |
    sed -nE 's/.* U ((cublas|curand|nccl)\w+).*/void \1(void) { __builtin_trap(); }/p' | sort -u >"$folder/all.c"
for library in $(readelf -d "${programs[@]}" | grep -oE 'lib(cublasLt|curand|nccl)\.so[.0-9]*' | sort -u); do
    cc -shared -fPIC "-Wl,-soname,$library,--default-symver" -o "$folder/$library" "$folder/all.c"
done
echo "$folder"
