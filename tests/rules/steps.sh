#!/usr/bin/env bash
# GD_STEP (kernels/common/kernel.h) hands the values of a derivation's steps to the study's module alone: in any
# other build a kernel is the same object code as without these statements.
#   tests/rules/steps.sh SOURCE_DIR COMPILER
set -euo pipefail
root=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
mkdir "$work"/{with,without}
cp -r "$root/kernels" "$work/with"
cp -r "$root/kernels" "$work/without"
cd "$work/without"
mapfile -t files < <(grep -l 'GD_STEP("' kernels/*/*.[ch])
# A statement may have two lines, and a condition before it.
sed -i -E ':a; /GD_STEP\((which|")[^;]*$/ { N; ba }; s/(if \([^;]*\) )?GD_STEP\((which|")[^;]*;//' "${files[@]}"
if grep -n 'GD_STEP("' "${files[@]}"; then exit 1; fi
count=0
for file in $(printf '%s\n' "${files[@]}" kernels/dropout/dropout_cpu.c | grep '_cpu\.c$' | sort -u); do
    for tree in with without; do
        (cd "$work/$tree" && "$2" -std=c11 -O2 -DGD_REAL_DOUBLE -I"$root"/{include,src} -Ikernels -Ikernels/common \
            -c "$file" -o "$work/$tree.o")
    done
    cmp "$work/with.o" "$work/without.o"
    count=$((count + 1))
done
((count >= 15))
echo "$count kernels without their steps are the same object code"
