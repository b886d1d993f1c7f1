#!/usr/bin/env bash
# scripts/size counts what it says, and ends with status 1 if a total is above its ceiling; --lower
# lowers a ceiling and never raises one. The project is below its ceilings.
#   tests/rules/size.sh SOURCE_DIR WORK_DIR
set -euo pipefail
source=$1 work=$2
rm -rf "$work"
mkdir -p "$work"/{scripts,src/core,tests/core,build,docs,python/tests,kernels/{mul,rms_norm}}
cp "$source/scripts/size" "$source/scripts/lib.sh" "$work/scripts"
cd "$work"

failed=0
complain()
{
    echo "$1"
    failed=1
}

# file LINES NAME
file()
{
    seq "$1" >"$2"
}

# is NAME LINES [TOKENS]
is()
{
    local row
    row=$(sed -nE "s|^$1 +([0-9]+) lines +([0-9]+) tokens$|\1 \2|p" <<<"$said")
    [[ $row == "$2 ${3:-${row#* }}" ]] || complain "$1: $row, wanted $2 ${3:-}"
}

# ceilings OUTSIDE TESTS
ceilings()
{
    sed -i -E "s/^(outside_most=).*/\1$1/; s/^(tests_most=).*/\1$2/" scripts/size
}

cat >src/core/tape.c <<'C'
/* A comment, of two lines
 * with "quotes" */
int x = 1; // and one of a line
char *s = "a text /* of */ one"; /* a */ /* b */
C
file 30 src/core/ops.def
file 7 tests/core/test_tape.c
file 8 kernels/mul/test.c
file 8 kernels/mul/planted.c
file 8 kernels/rms_norm/cuda_plan.cu
file 9 python/tests/test_ops.py
file 9 build/made.c
file 11 docs/page.md
file 100 kernels/mul/mul.c
file 50 kernels/rms_norm/rms_norm.cu
file 3 kernels/rms_norm/ladder.cu
file 6 kernels/CMakeLists.txt
printf '#!/usr/bin/env bash\n# A comment.\necho hello # and another\n' >scripts/tool
printf 'no code\n' >scripts/words
scripts=$(cat scripts/size scripts/lib.sh scripts/tool | wc -l)
all=$((34 + 159 + scripts))

ceilings "$all" 40
said=$(scripts/size) || complain "status $?: $said"
is src/core 34 41 # int x = 1 ; char * s = q ;
is kernels 159
is "kernels, CUDA" 53
is "rms_norm, CUDA" 50
is core 34
is scripts "$scripts"
is "outside tests" "$all"
is "in tests" 40

file 101 kernels/mul/mul.c
said=$(scripts/size 2>&1) && complain "too much is no failure"
[[ $said == *"outside: 1 lines above the ceiling of $all"* ]] || complain "$said"
said=$(scripts/size --lower 2>&1) && complain "--lower raises a ceiling"
file 90 kernels/mul/mul.c
file 9 kernels/mul/test.c
said=$(scripts/size --lower 2>&1) && complain "too many tests are no failure"
[[ $said == *"outside: the ceiling falls from $all to $((all - 10))"* ]] || complain "$said"
[[ $said == *"tests: 1 lines above the ceiling of 40"* ]] || complain "$said"
grep -q "^outside_most=$((all - 10))$" scripts/size || complain "the ceiling did not fall"
grep -q "^tests_most=40$" scripts/size || complain "the ceiling of tests changed"

"$source/scripts/size" || failed=1
exit $failed
