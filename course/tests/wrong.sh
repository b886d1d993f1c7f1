#!/usr/bin/env bash
# Makes the wrong solutions of a table, a file each: the answer, but for what its row replaces, line by line:
#   missing_term: 85 points: words of the hint
#   -(s + x[i] * s * (1 - s))
#   +s
# The first line of a file is that of its row, as /* 85 points: words of the hint */.
#   course/tests/wrong.sh TABLE ANSWER FOLDER
set -euo pipefail
# shellcheck disable=SC2016 # of awk, not of this shell
awk -v folder="$3" '
    function replace() {
        at = index(text, old)
        if (!at) { print FILENAME ": " name " replaces what is not there: " old; failed = 1; exit }
        text = substr(text, 1, at - 1) new substr(text, at + length(old))
        old = new = replaced = ""
    }
    function finish() {
        if (old) replace()
        if (name) printf "%s", text >(folder "/" name ".c")
        name = ""
    }
    FNR == NR { answer = answer $0 "\n"; next }
    /^-/ { if (replaced) replace(); old = old (old ? "\n" : "") substr($0, 2); next }
    /^\+/ { new = new (replaced ? "\n" : "") substr($0, 2); replaced = 1; next }
    { finish() }
    NF { name = $1; sub(/:$/, "", name); text = $0; sub(/^[^ ]* /, "", text) }
    NF { text = "/* " text " */\n" answer }
    END { if (!failed) finish(); exit failed }' "$2" "$1"
