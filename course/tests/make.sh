#!/usr/bin/env bash
# The folder that scripts/course makes stands alone: there Makefile builds with a compiler alone what CMake
# builds, the same graders, which give the same points and hints, but for their rounded numbers in brackets;
# a solution has all points with hidden seeds; and `make grade` writes JSON with the points of all.
#   course/tests/make.sh GRADERS_OF_CMAKE COURSE_FOLDER WORK_DIR C_COMPILER
set -euo pipefail
graders=$1 work=$3
rm -rf "$work"
"$2/../scripts/course" "$work/alone" --teacher --no-lessons >/dev/null
make=(make -s -C "$work/alone" CC="$4" BUILD="$work")
"${make[@]}" -j2 >/dev/null
cd "$work/alone"
for file in solutions/[1-8]-*/*.c; do
    name=${file#solutions/} && name=${name%/*}
    said=$("${make[@]}" "grade-${name%%-*}" FILE="$file" SEEDS=seeds-hidden)
    [[ $said == *100/100* ]] || { echo "$file: $said" && exit 1; }
done
export CFLAGS=-I. # so that wrong solutions may include others
make+=(CFLAGS=-I.)
for file in wrong/[1-8]-*/w*.c; do
    name=${file#wrong/} && name=${name%/*}
    diff <("${make[@]}" "grade-${name%%-*}" FILE="$file" | sed 's/ (.*//') \
        <("$graders/grade-$name" "$file" | sed 's/ (.*//') || { echo "$file" && exit 1; }
done
"${make[@]}" grade >"$work/said"
folders=([1-8]-*/)
count=$(grep -c '"points": 0, "of": 100' "$work/grade.json")
((count == ${#folders[@]})) || { cat "$work/said" "$work/grade.json" && exit 1; }
