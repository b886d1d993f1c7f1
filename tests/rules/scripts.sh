#!/usr/bin/env bash
# Every script prints its help when asked, and does nothing else. scripts/train gives gradus-train its own
# text only where no other is named; scripts/test gives CMake and ctest the options that are theirs, builds
# code for a GPU only where there is one, and says why a test was skipped; scripts/size counts what it says,
# ends with status 1 if a total is above its ceiling or README.md says something else, and --lower lowers
# a ceiling, never raises one, and writes README.md's table. The project is below its ceilings.
# The compilers, CMake, ctest, nvidia-smi and gradus-train are played by scripts here.
#   tests/rules/scripts.sh SOURCE_DIR WORK_DIR
set -euo pipefail
source=$1 work=$2
rm -rf "$work"
mkdir -p "$work"/{bin,none,tree/{scripts,build/bin,run/step-00000005}} \
    "$work"/size/{scripts,src/core,tests/core,build,course/wrong,docs,python/tests,kernels/{mul,rms_norm}}
cp "$source"/scripts/{test,train,lib.sh} "$work/tree/scripts"
cp "$source"/scripts/{size,lib.sh} "$work/size/scripts"
export PATH=$work/bin:$PATH CC=cc CXX=c++
unset GRADUS_WERROR

failed=0
complain()
{
    echo "$1"
    failed=1
}

# player FILE: a program, which is read from stdin
player()
{
    { echo '#!/bin/sh' && cat; } >"$1"
    chmod +x "$1"
}
for name in cc c++ make pkg-config nvcc; do player "$work/bin/$name" <<<'exit 0'; done

# ---- --help ---------------------------------------------------------------------------------------

player "$work/bin/cmake" <<<"echo \"cmake \$@\" >>'$work/done'; exit 1"
for script in "$source"/scripts/*; do
    name=${script##*/}
    [[ -x $script && $name != *.py ]] || continue
    [[ $(head -1 "$script") != *python3 ]] || command -v python3 >/dev/null || continue
    for option in -h --help; do
        said=$("$script" "$option" 2>&1 </dev/null) || complain "$name $option: exit status $?"
        [[ $said == *"scripts/$name"* ]] || complain "$name $option: $said"
    done
done
[[ ! -e $work/done ]] || complain "$(<"$work/done")"
for name in torture-resume torture-saves; do
    said=$("$source/scripts/$name" "$work/none" 2>&1) && complain "$name: it needs no program"
    [[ $said == *"$name: there is no $work/none/bin/gradus-train"* ]] || complain "$name: $said"
done

# ---- scripts/test ---------------------------------------------------------------------------------

cd "$work/tree"
player "$work/bin/cmake" <<'EOF'
case $1 in
--version) echo cmake version 3.25.1 ;;
-S) shift 4 && echo "$@" | sed 's/^-G Ninja //' >cmake.said && : >build/CMakeCache.txt ;;
--build) echo "[0/1] Re-checking globbed directories..." && echo "ninja: no work to do." ;;
esac
EOF
player "$work/bin/ctest" <<'EOF'
while [ $# -gt 0 ]; do
    case $1 in
    --output-junit) shift && file=$1 ;;
    *) said="$said $1" ;;
    esac
    shift
done
echo "$said" >../ctest.said
printf '\t<testcase name="good" status="run">\n\t\t<system-out>fine\n</system-out>\n\t</testcase>\n' >"$file"
printf '\t<testcase name="gpu" status="notrun">\n\t\t<skipped message="77"/>\n' >>"$file"
printf '\t\t<system-out>skipped: no &quot;GPU&quot; &amp; no nvcc\n</system-out>\n\t</testcase>\n' >>"$file"
exit 8
EOF

# calls CMAKE CTEST ARGUMENT...: what each of them is given.
calls()
{
    local wanted=$1 more=$2 status=0
    shift 2
    said=$(scripts/test "$@" 2>&1) || status=$?
    [[ $status == 8 && $(<cmake.said) == "$wanted" && $(<ctest.said) == " --output-on-failure$more" &&
        $said == $'\nSkipped:\n  gpu: skipped: no "GPU" & no nvcc' ]] ||
        complain "scripts/test $*: status $status, cmake $(<cmake.said), ctest$(<ctest.said), $said"
    [[ ${keep-} ]] || rm build/CMakeCache.txt
}
plain="-DCMAKE_BUILD_TYPE=Release -DGRADUS_TESTS=ON"
player "$work/bin/nvidia-smi" <<<'exit 1'
calls "$plain -DGRADUS_CUDA=OFF" ""
calls "$plain -DGRADUS_CUDA=OFF -DGRADUS_CUDA=AUTO -DX=a b" " -L quick -j 3" \
    -L quick -DGRADUS_CUDA=AUTO "-DX=a b" -j 3
GRADUS_WERROR=ON calls "$plain -DGRADUS_WERROR=ON -DGRADUS_CUDA=OFF" ""
player "$work/bin/nvidia-smi" <<<'echo "GPU 0: a GPU"'
keep=1 calls "$plain" " -R x" -R x
player "$work/bin/nvidia-smi" <<<'exit 1'
calls "$plain" "" # what the folder has already been configured for stays

# ---- scripts/train --------------------------------------------------------------------------------

player build/bin/gradus-train <<<'echo "$@"'
echo "int main(void);" >main.c
printf 'steps = 3\n  data = x\n' >text.config
printf 'tokens=y\n' >tokens.config
printf '# data = x\nval-data = x\nsteps = 3\n' >other.config
own="--data $work/tree/build/gradus-sources.txt"
# There are no abbreviations: gradus-train refuses them.
# shellcheck disable=SC2086 # words
for arguments in "" "--steps 3" "--out new --resume auto" "--resume auto --out=new" "--init run" \
    "--config other.config" "--val-data x" "--steps 3 --dat x" "--tok=x" "--conf text.config" \
    "--res auto --out run"; do
    said=$(scripts/train $arguments 2>/dev/null) || said="exit status $?"
    [[ $said == "$own${arguments:+ $arguments}" ]] || complain "scripts/train $arguments: $said"
done
grep -q "int main" build/gradus-sources.txt || complain "scripts/train: main.c is not in its own text"
mkfifo pipe.config
# shellcheck disable=SC2086
for arguments in "--data x" "--data=x --steps 3" "--tokens x --val-data y" "--config text.config" \
    "--config=tokens.config --steps 3" "--config pipe.config" "--resume run" \
    "--resume=run/step-00000005 --steps 9" "--out=run --resume=auto"; do
    said=$(scripts/train $arguments 2>/dev/null) || said="exit status $?"
    [[ $said == "$arguments" ]] || complain "scripts/train $arguments: $said"
done

# ---- scripts/size ---------------------------------------------------------------------------------

cd "$work/size"
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
file 30 course/test.c
file 8 course/wrong/sum.c
file 11 docs/page.md
file 100 kernels/mul/mul.c
file 50 kernels/rms_norm/rms_norm.cu
file 3 kernels/rms_norm/ladder.cu
file 6 kernels/CMakeLists.txt
printf '#!/usr/bin/env bash\n# A comment.\necho hello # and another\n' >scripts/tool
printf 'no code\n' >scripts/words
scripts=$(cat scripts/size scripts/lib.sh scripts/tool | wc -l)
all=$((34 + 159 + scripts))
printf "| core | 34 | |\n| library | 200 | |\n| all | 1,000 | with the rest; 40 more are tests |\n" \
    >README.md
sed -i -E "s/^(outside_most=).*/\1$all/; s/^(tests_most=).*/\140/" scripts/size

said=$(scripts/size 2>&1) && complain "README.md is wrong, and nothing says so"
[[ $said == *"README.md: library has 193 lines, not 200: scripts/size --lower writes it"* ]] ||
    complain "$said"
scripts/size --lower >/dev/null || complain "--lower did not write README.md"
(($(sed -nE 's/^\| all \| ([0-9,]+) \| with.*/\1/p' README.md | tr -d ,) == all)) ||
    complain "$(<README.md)"
said=$(scripts/size) || complain "status $?: $said"
is src/core 34 41 # int x = 1 ; char * s = q ;
is kernels 159
is "kernels, CUDA" 53
is "rms_norm, CUDA" 50
is course 30
is core 34
is scripts "$scripts"
is "outside tests" "$all"
is "in tests" 40

sed -i '/^say /d' scripts/size # of ceilings alone from here on, and four lines fewer
file 105 kernels/mul/mul.c
said=$(scripts/size 2>&1) && complain "too much is no failure"
[[ $said == *"outside: 1 lines above the ceiling of $all"* ]] || complain "$said"
said=$(scripts/size --lower 2>&1) && complain "--lower raises a ceiling"
file 94 kernels/mul/mul.c
file 9 kernels/mul/test.c
said=$(scripts/size --lower 2>&1) && complain "too many tests are no failure"
[[ $said == *"outside: the ceiling falls from $all to $((all - 10))"* ]] || complain "$said"
[[ $said == *"tests: 1 lines above the ceiling of 40"* ]] || complain "$said"
grep -q "^outside_most=$((all - 10))$" scripts/size || complain "the ceiling did not fall"
grep -q "^tests_most=40$" scripts/size || complain "the ceiling of tests changed"

"$source/scripts/size" || failed=1
exit $failed
