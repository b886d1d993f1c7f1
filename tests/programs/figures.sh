#!/usr/bin/env bash
# bench/figures.py on made-up figures: each block of a page gets its table, the rest stays.
#   tests/programs/figures.sh SOURCE_DIR WORK_DIR
set -euo pipefail
command -v python3 >/dev/null || {
    echo "python3 is not there: skipped"
    exit 77
}
script=$1/bench/figures.py work=$2
rm -rf "$work"
mkdir -p "$work"
cd "$work"

# A line of the benchmark: the ways' us, GB/s, ceiling, share and target, the errors, what missed.
ways=$'10.0\t4000\t4100\t0.976\t0.97\t20.0\t3000\t4100\t0.732\t0.95\t1e-7\t0.010'
keys=$'forward_us\tforward_gbps\tforward_ceiling_gbps\tforward_share\tforward_target'
keys=$keys$'\t'${keys//forward/backward}$'\terror\tdw_error\tbelow_target'
size=$'32768 x 256'
{
    printf 'table\tdtype\tsize\t%s\n' "$keys"
    for dtype in float32 bfloat16; do
        printf 'Sizes\t%s\t%s\t%s\tbackward\n' $dtype "$size" "$ways"
    done
    printf 'Sizes\tmixed\t16384 x 768\t%s\t\n' "$ways"
    printf 'table\tdtype\tsize\tweight\t%s\n' "$keys"
    printf 'Per head\tfloat32\t1048576 x 64\t[8, 64]\t%s\t\n' "$ways"
    printf 'table\tdtype\tsize\twith\tforward_host_us\tbackward_host_us\n'
    printf 'Host time of a call\tbfloat16\t1024 x 4096\tdbias\t2.50\t4.75\n'
    printf 'table\tempty_kernels\thost_us\n'
    printf 'Host time of launches alone\t2\t4.40\n'
} >rms.tsv
{
    printf 'op\tdtype\trows\tcols\tway\tgradus\tLiger\tQuACK\tratio\tratio_min\tratio_max\n'
    printf 'rms_norm\tfloat32\t32768\t256\tforward\t4000.0\tnan\t3788.4\t1.0561\t1.05\t1.06\n'
} >peers.tsv
page()
{
    for name in rms_norm add_rms_norm heads host; do
        printf 'Before %s.\n\n<!-- figures: %s -->\nold %s\n<!-- end -->\n' $name $name $name
    done
}
page >page.md
page >other.md

"$script" page.md --rms-norm rms.tsv --peers peers.tsv
failed=0
has()
{
    grep -qxF -- "$1" page.md || { echo "missing: $1" && failed=1; }
}
has "| float32 | $size | 10.0 | 4000 | 4100 | 0.976 | QuACK 3788 | 1.056 | 20.0 | 3000 | 4100 |\
 0.732* |  |  | 0.010 |"
has "| mixed | 16384 x 768 | 10.0 | 4000 | 4100 | 0.976 |  |  | 20.0 | 3000 | 4100 | 0.732 |  |  |\
 0.010 |"
has "| float32 | 1048576 x 64 | [8, 64] | 10.0 | 4000 | 4100 | 0.976 | 20.0 | 3000 | 4100 | 0.732 |\
 0.010 |"
has "| bfloat16 | 1024 x 4096 | dbias | 2.50 | 4.75 |"
has "|  | 2 empty kernels |  | 4.40 |  |"
has "old add_rms_norm"
(($(grep -c '^Before' page.md) == 4 && $(grep -c '^old' page.md) == 1)) || failed=1
cp page.md once.md
"$script" page.md --rms-norm rms.tsv --peers peers.tsv
cmp page.md once.md || failed=1

head -n 4 rms.tsv >add.tsv
"$script" other.md --add-rms-norm add.tsv
grep -qxF 'old rms_norm' other.md && ! grep -q 'old add_rms_norm' other.md || failed=1

# The comparisons that need no PyTorch to read their options take whole numbers as counts.
for call in "compare_train --rounds" "compare_ddp --ranks"; do
    read -r name option <<<"$call"
    for count in 2.5 0 -1 x; do
        said=$(python3 "$(dirname "$script")/$name.py" "$option=$count" 2>&1) && failed=1
        [[ $said == *"argument $option: \"$count\" is not a whole number of at least 1" ]] || {
            echo "$call $count: $said"
            failed=1
        }
    done
done
python3 "$1/tests/programs/harness.py" "$1" || failed=1
exit $failed
