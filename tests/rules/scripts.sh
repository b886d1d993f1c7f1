#!/usr/bin/env bash
# Every script prints its help when asked, and does nothing else. scripts/train gives gradus-train its own
# text only where no other is named; scripts/test gives CMake and ctest the options that are theirs, builds
# code for a GPU only where there is one, and says why a test was skipped; scripts/size counts what it says,
# ends with status 1 if a total is above its ceiling or README.md says something else, and --lower lowers
# a ceiling, never raises one, and writes README.md's table. The project is below its ceilings.
# The compilers, CMake, ctest, nvidia-smi and gradus-train are played by scripts here.
#   tests/rules/scripts.sh SOURCE_DIR WORK_DIR
set -euo pipefail
source=$1 work=$2 failed=0
rm -rf "$work"
mkdir -p "$work"/{bin,tree/{scripts,build/bin,run/step-00000005}} \
    "$work"/size/{scripts,src/core,tests/core,build,course/wrong,docs,kernels/{mul,rms_norm}}
cp "$source"/scripts/{test,train,lib.sh} "$work/tree/scripts"
cp "$source"/scripts/{size,lib.sh} "$work/size/scripts"
export PATH=$work/bin:$PATH CC=cc CXX=c++
unset GRADUS_WERROR

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
    said=$("$source/scripts/$name" "$work/bin" 2>&1) && complain "$name: it needs no program"
    [[ $said == *"$name: there is no $work/bin/bin/gradus-train"* ]] || complain "$name: $said"
done

# ---- scripts/test ---------------------------------------------------------------------------------

cd "$work/tree"
player "$work/bin/cmake" <<'EOT'
case $1 in
--version) echo cmake version 3.25.1 ;;
-S) shift 4 && echo "$@" | sed 's/^-G Ninja //' >cmake.said && : >build/CMakeCache.txt ;;
--build) echo "ninja: no work to do." ;;
esac
EOT
player "$work/bin/ctest" <<'EOT'
first=$1 file=$3 && shift 3 && echo "$first $*" >../ctest.said
printf '\t<testcase name="good" status="run">\n\t\t<system-out>fine\n</system-out>\n\t</testcase>\n' >"$file"
printf '\t<testcase name="gpu" status="notrun">\n\t\t<skipped message="77"/>\n' >>"$file"
printf '\t\t<system-out>skipped: no &quot;GPU&quot; &amp; no nvcc\n</system-out>\n\t</testcase>\n' >>"$file"
exit 8
EOT

# calls GPU CMAKE CTEST ARGUMENT...: what each of them is given where nvidia-smi ends so.
calls()
{
    local wanted="-DCMAKE_BUILD_TYPE=Release -DGRADUS_TESTS=ON$2" more=$3 status=0
    player "$work/bin/nvidia-smi" <<<"[ $1 = 0 ] && echo GPU 0: a GPU"
    shift 3
    said=$(scripts/test "$@" 2>&1) || status=$?
    [[ $status == 8 && $(<cmake.said) == "$wanted" && $(<ctest.said) == "--output-on-failure $more" &&
        $said == $'\nSkipped:\n  gpu: skipped: no "GPU" & no nvcc' ]] ||
        complain "scripts/test $*: status $status, cmake $(<cmake.said), ctest $(<ctest.said), $said"
}
calls 1 " -DGRADUS_CUDA=OFF -DGRADUS_CUDA=AUTO -DX=a b" "-L quick -j 3" -L quick -DGRADUS_CUDA=AUTO \
    "-DX=a b" -j 3
rm build/CMakeCache.txt
GRADUS_WERROR=ON calls 0 " -DGRADUS_WERROR=ON" "-R x" -R x
calls 1 "" "" # what the folder has already been configured for stays

# ---- scripts/train --------------------------------------------------------------------------------

player build/bin/gradus-train <<<'echo "$@"'
echo "int main(void);" >main.c
printf 'steps = 3\n  data = x\n' >text.config
printf 'tokens=y\n' >tokens.config
printf '# data = x\nval-data = x\nsteps = 3\n' >other.config
mkfifo pipe.config
# gives FIRST ARGUMENTS...: what gradus-train is given, FIRST and the arguments, as words.
gives()
{
    local first=$1 arguments
    shift
    for arguments; do
        # shellcheck disable=SC2086
        said=$(scripts/train $arguments 2>/dev/null) || said="exit status $?"
        [[ $said == "$first$arguments" ]] || complain "scripts/train $arguments: $said"
    done
}
# There are no abbreviations: gradus-train refuses them.
gives "--data $work/tree/build/gradus-sources.txt " "--out new --resume auto" "--resume auto --out=new" \
    "--init run" "--config other.config" "--val-data x" "--steps 3 --dat x" "--res auto --out run"
grep -q "int main" build/gradus-sources.txt || complain "scripts/train: main.c is not in its own text"
gives "" "--data x" "--data=x --steps 3" "--tokens x --val-data y" "--config text.config" \
    "--config=tokens.config --steps 3" "--config pipe.config" "--resume run" "--out=run --resume=auto"

# ---- scripts/size ---------------------------------------------------------------------------------

cd "$work/size"
cat >src/core/tape.c <<'EOT'
/* A comment, of two lines
 * with "quotes" */
int x = 1; // and one of a line
char *s = "a text /* of */ one"; /* a */ /* b */
EOT
for file in "30 src/core/ops.def" "7 tests/core/test_tape.c" "8 kernels/mul/test.c" \
    "17 kernels/mul/planted.c" "8 kernels/rms_norm/cuda_plan.cu" "9 build/made.c" "30 course/test.c" \
    "8 course/wrong/sum.c" "11 docs/page.md" "100 kernels/mul/mul.c" "50 kernels/rms_norm/rms_norm.cu" \
    "3 kernels/rms_norm/ladder.cu" "6 kernels/CMakeLists.txt" "9 scripts/words"; do
    seq "${file% *}" >"${file#* }"
done
printf '#!/usr/bin/env bash\n# A comment.\necho hello # and another\n' >scripts/tool
scripts=$(cat scripts/size scripts/lib.sh scripts/tool | wc -l)
all=$((34 + 159 + scripts))
printf "| core | 34 | |\n| library | 200 | |\n| all | 1,000 | with the rest; 40 more are tests |\n" \
    >README.md
sed -i -E "s/^(outside_most=).*/\1$all/; s/^(tests_most=).*/\140/" scripts/size

# fails WORDS ARGUMENT...: scripts/size does, and says these.
fails()
{
    local words=$1
    shift
    said=$(scripts/size "$@" 2>&1) && complain "no failure: $words"
    [[ $said == *"$words"* ]] || complain "not said: $words: $said"
}
fails "README.md: library has 193 lines, not 200: scripts/size --lower writes it"
scripts/size --lower >/dev/null || complain "--lower did not write README.md"
said=$(scripts/size) || complain "status $?: $said"
for row in "src/core 34 lines 41" "kernels 159" "kernels, CUDA 53" "rms_norm, CUDA 50" "course 30" \
    "core 34" "scripts $scripts" "outside tests $all" "in tests 40"; do # 41: int x = 1 ; char * s = q ;
    [[ $'\n'$(tr -s ' ' <<<"$said") == *$'\n'$row\ * ]] || complain "wanted $row: $said"
done
sed -i '/^say /d' scripts/size # from here on of ceilings alone, and with four lines fewer
seq 105 >kernels/mul/mul.c
fails "outside: 1 lines above the ceiling of $all" --lower
seq 94 >kernels/mul/mul.c
seq 9 >kernels/mul/test.c
fails "tests: 1 lines above the ceiling of 40" --lower
[[ $said == *"outside: the ceiling falls from $all to $((all - 10))"* ]] || complain "$said"
[[ $(grep -cE "^(outside_most=$((all - 10))|tests_most=40)$" scripts/size) == 2 ]] || complain "ceilings"

"$source/scripts/size" || failed=1
exit $failed
