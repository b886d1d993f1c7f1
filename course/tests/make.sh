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
export CFLAGS=-I. # the answer to 7 includes others
make+=(CFLAGS="$CFLAGS")
folders=([1-8]-*)
for name in "${folders[@]}"; do
    answer=$(echo "solutions/$name"/*.c) grade=("${make[@]}" "grade-${name%%-*}")
    said=$("${grade[@]}" FILE="$answer" SEEDS=seeds-hidden)
    [[ $said == *100/100* ]] || { echo "$answer: $said" && exit 1; }
    mkdir -p "$work/wrong/$name"
    tests/wrong.sh "wrong/$name.txt" "$answer" "$work/wrong/$name"
    for file in "$work/wrong/$name"/w*.c; do
        diff <("${grade[@]}" FILE="$file" | sed 's/ (.*//') \
            <("$graders/grade-$name" "$file" | sed 's/ (.*//') || { echo "$file" && exit 1; }
    done
done
"${make[@]}" grade >"$work/said"
count=$(grep -c '"points": 0, "of": 100' "$work/grade.json")
((count == ${#folders[@]})) || { cat "$work/said" "$work/grade.json" && exit 1; }
