#!/usr/bin/env bash
# scripts/size counts what it says, names a room above its budget and ends with status 1; and the
# project is within its budgets.
#   tests/rules/size.sh SOURCE_DIR WORK_DIR
set -euo pipefail
source=$1 work=$2
rm -rf "$work"
mkdir -p "$work"/{scripts,src/core,tests/core,build,docs,kernels/{mul,rms_norm}}
cp "$source/scripts/size" "$source/scripts/lib.sh" "$work/scripts"
cd "$work"

failed=0
complain()
{
    echo "$1"
    failed=1
}

# row NAME: the lines that it counts, and whether that is too much
row()
{
    sed -nE "s|^$1 +([0-9]+)  of +[0-9]+(  TOO MUCH)?.*|\1\2|p" <<<"$said"
}

# file LINES NAME
file()
{
    seq "$1" >"$2"
}

# is NAME LINES
is()
{
    [[ $(row "$1") == "$2" ]] || complain "$1: $(row "$1"), wanted $2"
}

file 300 src/core/tape.c
file 30 src/core/ops.def
file 7 tests/core/test_tape.c # not counted, nor are the next three
file 8 kernels/mul/test.c
file 8 kernels/mul/planted.c
file 8 kernels/rms_norm/cuda_plan.cu
file 9 build/made.c
file 11 docs/page.md
file 100 kernels/mul/mul.c
file 400 kernels/mul/mul_cpu.c
file 20 kernels/mul/other.h
{ echo '#include "mul/mul.h"' && seq 9; } >kernels/rms_norm/rms_norm_cpu.c
echo '#include "rms_norm/tiles.h"' >>kernels/rms_norm/rms_norm_cpu.c
file 5 kernels/rms_norm/tiles.h
file 50 kernels/rms_norm/rms_norm.cu
file 3 kernels/rms_norm/ladder.cu
said=$(scripts/size) || complain "status $?: $said"
is src/core 330
is kernels 589
is cpu 400
is "cpu rms_norm" 16
is "C and CUDA" 889
is "C rms_norm" 16
is "CUDA rms_norm" 50
is "all code" $((919 + $(wc -l <scripts/lib.sh)))

file 401 kernels/mul/mul_cpu.c
file 6000 src/core/tape.c
said=$(scripts/size 2>&1) && complain "too much is no failure"
is cpu "401  TOO MUCH"
is src/core "6030  TOO MUCH"
is kernels 590
[[ $said == *"raise the budget in scripts/size"* ]] || complain "$said"

"$source/scripts/size" || failed=1
exit $failed
