#!/usr/bin/env bash
# docs/examples/tape_in_100_lines.c: it has at most 100 lines, its names are those of src/core/, and its
# gradient check fails for every term of the backward that is spoiled.
#   tests/rules/tape_in_100_lines.sh SOURCE_DIR WORK_DIR C_COMPILER
set -euo pipefail
source=$1 work=$2 cc=$3
page=$source/docs/examples/tape_in_100_lines.c
rm -rf "$work"
mkdir -p "$work"
cd "$work"
failed=0
complain()
{
    echo "$1"
    failed=1
}

(($(wc -l <"$page") <= 100)) || complain "it has $(wc -l <"$page") lines"
for name in op node tensor apply backward; do
    grep -qE "\b$name\b" "$page" || complain "nothing is called $name"
    grep -qsE "\bgd_$name\b" "$source"/src/core/*.[ch] || complain "src/core/ has no gd_$name"
done

# check FILE: the exit status of the program, 2 if it does not compile
check()
{
    local status=0
    "$cc" -std=c11 -O1 "$1" -o program -lm || return 2
    ./program >said || status=$?
    return $status
}

check "$page" || complain "it fails: $(<said)"

# spoils EXPRESSION: what sed makes of the page must compile, and fail
spoils()
{
    local status=0
    sed -E "$1" "$page" >spoilt.c
    ! cmp -s spoilt.c "$page" || complain "$1 changes nothing"
    check spoilt.c || status=$?
    ((status == 1)) || complain "$1: status $status: $(<said)"
}
spoils '/^OP\(add/s/, 1, 1\)/, 1, 1.001)/'
spoils '/^OP\(add/s/, 1, 1\)/, -1, 1)/'
spoils '/^OP\(mul/s/, b->value\[k\], a->value\[k\]\)/, a->value[k], a->value[k])/'
spoils '/^OP\(mul/s/, a->value\[k\]\)/, b->value[k])/'
spoils '/^OP\(tanh/s/1 - y->/1 + y->/'
spoils '/^OP\(exp/s/y->value\[k\], 0/a->value[k], 0/'
spoils '/^OP\(square/s/2 \* a/a/'
spoils 's/(EACH if \(b\) b->grad\[k\]) \+=/\1 =/' # b is read twice
spoils 's/EACH if \(b\) b->grad.*\\/\\/'
spoils 's/loss->grad\[k\] = 1;/loss->grad[k] = 2;/'
exit $failed
