#!/usr/bin/env bash
# An assignment: its answer gets all points; what a student is given none, and a sentence that says where to
# begin; each wrong solution what its first line says (wrong.sh), and a hint that contains these words.
#   course/tests/assignment.sh GRADER COURSE_FOLDER N-NAME
set -euo pipefail
grader=$1 name=$3
cd "$2"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ $name != 7-* ]] || export CFLAGS=-I. # its answer includes others

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

answer=$(echo "solutions/$name"/*.c)
expect "$answer" 100 "" &
./skeleton "$answer" >"$work/${answer##*/}"
expect "$work/${answer##*/}" 0 "begin here: " &
mkdir "$work/wrong"
tests/wrong.sh "wrong/$name.txt" "$answer" "$work/wrong"
wrong=0
for file in "$work"/wrong/*.c; do
    [[ $(head -n 1 "$file") =~ ^/\*\ ([0-9]+)\ points:\ (.*)\ \*/$ ]]
    expect "$file" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" &
    wrong=$((wrong + 1))
    ((wrong % 4)) || wait
done
wait
echo "$name: $wrong wrong solutions"
[[ ! -e $work/failed ]]
