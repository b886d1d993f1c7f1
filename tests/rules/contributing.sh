#!/usr/bin/env bash
# Adds two ops to a copy of the project exactly as CONTRIBUTING.md says, and checks their marks and
# gradients; then breaks a backward and sees that gradcheck notices. Builds its op outside the library.
#   tests/rules/contributing.sh SOURCE_DIR WORK_DIR
# shellcheck disable=SC2094 # what block gets is a name in the page, not a file
set -euo pipefail
source_dir=$1 work=$2
rm -rf "$work"
mkdir -p "$work/project"
cd "$source_dir"
cp -r CMakeLists.txt LICENSE README.md CHANGELOG.md cmake include platform src kernels "$work/project"
cd "$work/project"

# The fenced blocks of one language, or of the file that a C block names in its first line. A block
# ends at a fence as long as its first.
block()
{
    awk -v kind="$1" -v path="$2" '
        /^```/ && !fence { fence = $0; sub(/[^`].*/, "", fence); inside = $0 == fence kind
                           first = inside; next }
        $0 == fence { fence = ""; inside = 0; next }
        inside && first { first = 0; wanted = path == "" || index($0, "/* " path " ") == 1 }
        inside && wanted { print }' "$source_dir/CONTRIBUTING.md"
}

mkdir kernels/cube
block markdown "" >kernels/cube/README.md
block c kernels/cube/formula.h >kernels/cube/formula.h
block c kernels/cube/cube_cpu.c >kernels/cube/cube_cpu.c
block c kernels/cube/cube.c >kernels/cube/cube.c
block cuda kernels/cube/cube.cu >kernels/cube/cube.cu
block unary "" >>kernels/elementwise/unary.def
block derivative "" >>kernels/elementwise/derivatives.def
block sentence "" >sentence
block slope "" >slope
sed -i -e '/^\*\*From the input\.\*\*/{
    r sentence
}' -e '/^dy \* GD_MATH(cos)(x)/{
    r slope
}' kernels/elementwise/README.md
block declaration "" >declaration
sed -i '/^GD_API gd_tensor \*gd_neg/{
    r declaration
}' include/gradus/ops.h
grep -q gd_cube include/gradus/ops.h
grep -q gd_sinh include/gradus/ops.h

# What an op of the library takes, CPU and CUDA, with its derivation and cases.
lines=$(cat kernels/cube/* declaration | grep -c .)
((lines <= 80)) || { echo "cube takes $lines lines, wanted at most 80" && exit 1; }
block cuda my_cube.cu >"$work/my_cube.cu"
lines=$(grep -c . "$work/my_cube.cu")
((lines <= 40)) || { echo "my_cube takes $lines lines, wanted at most 40" && exit 1; }

bash "$source_dir/tests/rules/marks.sh" .

check()
{
    cmake -S . -B build -DCMAKE_BUILD_TYPE=Debug -DGRADUS_CUDA=OFF -DGRADUS_TESTS=OFF \
        -DGRADUS_TRAIN=OFF -DGRADUS_BENCH=OFF -DGRADUS_EXAMPLES=OFF -DGRADUS_WERROR=ON >/dev/null
    cmake --build build --target gradus-gradcheck --parallel 2 >build.log 2>&1 ||
        { cat build.log; exit 1; }
    build/bin/gradus-gradcheck cube sinh
}

# The whole CUDA build takes minutes, and its other files are built elsewhere.
if command -v nvcc >/dev/null; then
    nvcc -std=c++17 -arch=sm_80 --Werror=all-warnings -Iinclude -Isrc -Ikernels -Ikernels/common -c \
        -o "$work/cube.o" kernels/cube/cube.cu
    [[ $(nm "$work/cube.o") == *" T cube_backward_cuda"* ]]
    nvcc -std=c++20 --extended-lambda -arch=sm_80 --Werror=all-warnings -Iinclude -c \
        -o "$work/my_cube.o" "$work/my_cube.cu"
    [[ $(nm "$work/my_cube.o") == *" my_cube"* ]]
fi

check | tee report
grep -q "^cube .*PASS" report
grep -q "^sinh .*PASS" report

# The ops outside the library, in a program of its own.
block c my_swish.c >"$work/my_swish.c"
lesson=$(sed -n '/^static void definition/,/^}/p' "$source_dir/study/lessons/chain.md")
[[ -n $lesson && $(<"$work/my_swish.c") == *"$lesson"* ]] || { echo "a lesson has another definition" && exit 1; }
cat >"$work/main.cpp" <<'END'
#include <gradus/gradus.h>

extern const gd_op my_cube;
extern "C" const gd_op my_swish;

static bool passes(gd_context *ctx, const gd_op *op, int order)
{
    gd_gradcheck_options options = {};
    gd_gradcheck_report report;
    options.order = order;
    if (gd_gradcheck_case(ctx, op, op->cases, &options, &report)) return false;
    gd_gradcheck_print(&report, stdout, false);
    const bool good = report.verdict == GD_VERDICT_PASS;
    gd_gradcheck_report_free(&report);
    return good;
}

int main()
{
    gd_context *ctx = gd_context_create(nullptr);
    const bool good = passes(ctx, &my_cube, 1) && passes(ctx, &my_swish, 1) &&
                      passes(ctx, &my_swish, 3);
    gd_tensor *x = gd_tensor_create(ctx, GD_INT32, 0, nullptr);
    if (!gd_apply(&my_cube, &x, 1, nullptr)) puts(gd_error(ctx));
    gd_context_free(ctx);
    return !good;
}
END
cmake --build build --target gradus --parallel 2 >build.log 2>&1 || { cat build.log; exit 1; }
cc -std=c11 -Wall -Wextra -Werror -Iinclude -c -o "$work/my_swish.o" "$work/my_swish.c"
c++ -std=c++20 -D__host__= -D__device__= -Iinclude -o "$work/my_cube" "$work/main.cpp" \
    -x c++ "$work/my_cube.cu" -x none "$work/my_swish.o" -Lbuild/lib -lgradus -Wl,-rpath,build/lib
"$work/my_cube" | tee report
grep -q "my_cube: x is int32, wanted float32 or float64" report

sed -i 's/3 \* x \* x \* dy/x * x * dy/' kernels/cube/formula.h
if check >report; then
    echo "the forgotten factor was not noticed"
    exit 1
fi
grep -q FAIL report
grep -q '1/3' report
