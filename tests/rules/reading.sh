#!/usr/bin/env bash
# docs/reading.md names files that are there, with numbers of lines that are not off by more than a
# tenth; what texts count is counted; README.md has at most 130 lines.
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

# What texts count, in digits or in a word: counted FILE COUNT WORDS, in which N stands for the number.
numbers=(none one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty)
counted()
{
    local words
    words=$(tr -s ' \n' ' ' <"../$1" | grep -oiE "\\b${3/N/[a-z0-9,]+}" || true)
    [[ ${words,,} == "$(tr '[:upper:]' '[:lower:]' <<<"${3/N/$2}")" ||
        ${words,,} == "$(tr '[:upper:]' '[:lower:]' <<<"${3/N/${numbers[${2/,/}]:-}}")" ]] ||
        complain "$1: \"${words:-$3}\", but there are $2"
}
# The records of ops in the library.
ops=$(find ../kernels -name '*.c' ! -name 'test*' -exec cat {} + -o -name '*.def' ! -name 'planted*' -exec cat {} + |
    grep -cE '^(const gd_op gd_op_[a-z0-9_]+ =|[A-Z]+\([a-z0-9_]+, ")')
programs=$(grep -cE '^<!-- docs/examples/[a-z_0-9]+\.c, whole -->$' tutorial.md)
models=$(grep -cE '^## .*: ' gallery.md)
lessons=$(find ../study/lessons -name '*.md' | wc -l)
counted README.md "$ops" 'N ops, differentiable'
counted README.md "$ops" 'N ops on the CPU'
counted README.md "$lessons" 'N short lessons'
counted README.md "$programs" 'N programs, from'
counted docs/tutorial.md "$programs" 'N programs:'
counted docs/tutorial.md "$models" 'N more programs'
counted CHANGELOG.md "$models" 'N small models'
counted CHANGELOG.md "$lessons" 'N lessons'
counted README.md "$(sed -nE 's/.*in all ([0-9,]+) lines.*/\1/p' reading.md)" 'evening of N lines'
counted study/index.md "$lessons" 'N lessons'
counted docs/from_pytorch.md "$(find ../bench/twins -name '*.c' | wc -l)" 'N models in both'
counted docs/from_pytorch.md "$(grep -c . ../bench/twins/losses.txt)" 'N of them have the same losses'

# Every command is in the table of architecture.md.
for script in ../scripts/*; do
    [[ ! -x $script || $script == *.* ]] || grep -q "^| .scripts/.*\`${script##*/}\`" architecture.md ||
        complain "docs/architecture.md: nothing about $script"
done
(($(wc -l <../README.md) <= 130)) || complain "README.md: more than 130 lines"
echo "$count files of docs/reading.md"
exit $failed
