#!/usr/bin/env bash
# docs/reading.md names files that are there, with numbers of lines that are not off by more than a
# tenth, as does README.md for the core; README.md has at most 130 lines.
#   tests/rules/reading.sh SOURCE_DIR
set -euo pipefail
cd "$1/docs"
failed=0
complain()
{
    echo "$1"
    failed=1
}

# said WHERE WHAT NUMBER LINES
said()
{
    (($3 * 10 >= $4 * 9 && $3 * 10 <= $4 * 11)) || complain "$1: $2 has $4 lines, not $3"
}

# "](PATH) (LINES)", also where a line break is between the two
named_in() # < MARKDOWN
{
    tr -s ' \n' ' ' | grep -oE '\]\([^)]*\) \([0-9]+\)' |
        sed -E 's/^\]\((.*)\) \((.*)\)$/\1 \2/'
}
named=$(named_in <reading.md)
while read -r file lines; do
    [[ -f $file ]] || { complain "docs/reading.md: there is no $file" && continue; }
    said docs/reading.md "$file" "$lines" "$(wc -l <"$file")"
done <<<"$named"
count=$(wc -l <<<"$named")
((count >= 15)) || complain "docs/reading.md: only $count files with their lines"

evening=$(sed '/^## Another day/,$d' reading.md | named_in | awk '{ sum += $2 } END { print sum }')
said docs/reading.md "the evening" "$(sed -nE 's/.*in all ([0-9]+),([0-9]+) lines.*/\1\2/p' reading.md)" \
    "$evening"

# What the core has is on the path.
for file in ../src/core/*.c; do
    grep -qF "]($file)" reading.md || complain "docs/reading.md: nothing about $file"
done

core=$(sed -nE 's/^\| core \| ([0-9]+),([0-9]+) \|.*/\1\2/p' ../README.md)
said README.md src/core "${core:-0}" "$(cat ../src/core/*.[ch] | wc -l)"
(($(wc -l <../README.md) <= 130)) || complain "README.md: more than 130 lines"
echo "$count files of docs/reading.md"
exit $failed
