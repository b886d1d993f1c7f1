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
# in_backward OP EXPRESSION: the same, within the backward of an op
in_backward()
{
    spoils "/^static void $1_backward/,/^}/$2"
}
in_backward add 's/n->a->grad\[k\] \+= /&1.001 * /'
in_backward add 's/n->b->grad\[k\] \+= /&-/'
in_backward mul 's/n->b->value/n->a->value/'
in_backward mul 's/n->a->value/n->b->value/'
in_backward tanh 's/1 - n/1 + n/'
in_backward add 's/(n->b->grad\[k\]) \+=/\1 =/' # b is read twice
in_backward mul 's/(n->b->grad\[k\]) \+=/\1 =/' # so is what is squared
in_backward add '{/n->b->grad/d}'
spoils 's/loss->grad\[k\] = 1;/loss->grad[k] = 2;/'
exit $failed
