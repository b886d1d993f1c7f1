#!/usr/bin/env bash
# An assignment: its solution gets all points; its empty skeleton none, and a sentence that says where to
# begin; each wrong solution what its first line says, as
#   /* 88 points: a constant factor 1/3 */
# and a hint that contains these words. They may include other files, but for those that show that a student's
# may not.
#   course/tests/assignment.sh GRADER COURSE_FOLDER N-NAME
set -euo pipefail
grader=$1 name=$3
cd "$2"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# expect FILE POINTS WORDS
expect()
{
    local said status=0 points
    said=$("$grader" "$1" 2>&1) || status=$?
    points=$(sed -nE 's|^  .* ([0-9]+)/100$|\1|p' <<<"$said" | tail -n 1)
    if [[ $points != "$2" || $said != *"$3"* || $status != $(($2 < 100)) ]]; then
        printf '%s: status %s, wanted %s points and "%s":\n%s\n' "$1" "$status" "$2" "$3" "$said"
        touch "$work/failed"
    fi
}

for file in "$name"/*.c; do
    [[ $file != */test.c ]] || continue
    expect "solutions/$file" 100 "" &
    expect "$file" 0 "begin here: " &
done
wrong=0
for file in wrong/"$name"/*.c; do
    line=$(head -n 1 "$file")
    [[ $line =~ ^/\*\ ([0-9]+)\ points:\ (.*)\ \*/$ ]] || { echo "$file: a first line without points" && exit 1; }
    [[ $file == */includes_* ]] && flags='' || flags=-I.
    CFLAGS=$flags expect "$file" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" &
    wrong=$((wrong + 1))
    ((wrong % 4)) || wait
done
wait
echo "$name: $wrong wrong solutions"
[[ ! -e $work/failed ]]
