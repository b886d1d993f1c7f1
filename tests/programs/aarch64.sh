#!/usr/bin/env bash
# A build for 64-bit ARM: its loops, and what its programs compute.
#   tests/programs/aarch64.sh BUILD WORK_DIR [RUNNER...]     RUNNER runs its programs, such as qemu-aarch64
# NATIVE_TRAIN may name gradus-train of a build for this machine, with the losses of which it compares.
set -euo pipefail
build=$(realpath "$1") work=$2 run=("${@:3}")
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
rm -rf "$work"
mkdir -p "$work"
cd "$work"
export OMP_WAIT_POLICY=passive

failed=0
complain()
{
    echo "aarch64.sh: $*"
    failed=1
}

# ---- Loops ------------------------------------------------------------------------------------

# hot FILE FUNCTION INSTRUCTION COUNT [LANES]: in FILE's objects, for float and double, FUNCTION has
# innermost loops with COUNT such instructions on whole vectors (of REAL, or of LANES), and all of them
# have no call, no scalar arithmetic, and store nothing on the stack.
hot()
{
    local file=$1 function=$2 instruction=$3 count=$4 real lanes object
    for real in objects:4s objects_f64:2d; do
        lanes=${5:-${real#*:}} object=$build/CMakeFiles/gradus_${real%:*}.dir/kernels/$file.o
        [[ -e $object ]] || continue
        aarch64-linux-gnu-objdump -d --no-show-raw-insn "$object" |
            awk -F'\t' -v function_name="^($function)([.][a-z]+[.][0-9]+)*\$" \
                -v wanted="^$instruction v[0-9]+[.]$lanes," -v count="$count" '
function look(    i, j, k, to, inner, found, other)
{
    for (i = 1; i <= n; i++) {
        from[i] = 0
        if (text[i] !~ /^(b|b[.][a-z]+|cbn?z|tbn?z) /) continue
        to = text[i]
        sub(/ <.*/, "", to)
        sub(/.*[ ,]/, "", to)
        if (to in at && at[to] <= i) from[i] = at[to]
    }
    for (i = 1; i <= n; i++) {
        inner = from[i]
        for (j = from[i]; inner && j < i; j++) if (from[j] && from[j] >= from[i]) inner = 0
        if (!inner) continue
        found = other = 0
        for (k = from[i]; k <= i; k++) {
            if (text[k] ~ wanted) found++
            if (text[k] ~ /^(bl|blr) |^st.*\[sp|^fn?(madd|msub|mul|add|sub|div|sqrt) [sd][0-9]/) other++
        }
        if (found < count) continue
        if (other) spoilt = 1
        if (found > most) { most = found; size = i - from[i] + 1 }
    }
}
/^[0-9a-f]+ <.*>:$/ {
    if (reading) look()
    name = $0
    gsub(/.*<|>:$/, "", name)
    reading = name ~ function_name
    n = 0
    for (i in at) delete at[i]
}
reading && $1 ~ /^ *[0-9a-f]+:$/ {
    gsub(/[ :]/, "", $1)
    at[$1] = ++n
    text[n] = $2 " " $3
}
END {
    if (reading) look()
    if (!most || spoilt) exit 1
    print most, size
}' >loop || {
            complain "$file: not every loop of $function is $count $instruction v.$lanes or more, alone"
            continue
        }
        read -r most size <loop
        printf '%-42s %-23s %3d %s v.%s of %d\n' "$file" "$function" "$most" "$instruction" "$lanes" "$size"
    done
}

if command -v aarch64-linux-gnu-objdump >/dev/null; then
    echo "innermost loops: instructions on whole vectors, of all"
    for file in matmul/gemm_cpu.c attention/attention_forward_cpu.c attention/attention_backward_cpu.c; do
        for tile in 1x1 1x2 1x3 2x1 2x2 2x3 4x1 4x2 4x3 8x1 8x2 8x3; do
            hot $file tile_$tile fmla $((${tile%x*} * ${tile#*x}))
        done
    done
    hot attention/attention_forward_cpu.c forward_chunk 'fml[as]' 10 # exp
    hot attention/attention_backward_cpu.c 'backward_(share|tile)' 'fml[as]' 10
    hot rms_norm/rms_norm_cpu.c forward_row fmla 3    # the sum of squares
    hot rms_norm/rms_norm_cpu.c forward_row fmul 2    # y
    hot rms_norm/rms_norm_cpu.c backward_group fmla 3 # the sum of h xhat
    hot rms_norm/rms_norm_cpu.c backward_group fmls 1 # dx
    hot layer_norm/layer_norm_cpu.c forward_task fmla 1 2d
    hot layer_norm/layer_norm_cpu.c backward_piece fmla 1 2d
    hot swiglu/swiglu_cpu.c forward_block 'fml[as]' 10
    hot swiglu/swiglu_cpu.c backward_block 'fml[as]' 13
    hot elementwise/binary_cpu.c add_row fadd 1
    hot elementwise/binary_cpu.c mul_row fmul 1
    hot elementwise/binary_cpu.c mul_da_row fmla 1
    hot elementwise/unary_cpu.c relu_row fcmge 1
    hot optim/optim_cpu.c adamw_block fmla 4
    hot optim/optim_cpu.c adamw_block fsqrt 1
    hot copy/convert.c bf16_f32 'u?shll2?' 2
    hot copy/convert.c f32_bf16 'cm[a-z]*' 1
    hot copy/convert.c f16_f32 '[su]cvtf' 2
    hot copy/convert.c f32_f16 fadd 2
fi

# ---- Results ----------------------------------------------------------------------------------

"${run[@]}" "$build/bin/gradus-gradcheck" >checked || complain "gradcheck: $(grep FAIL checked)"
tail -1 checked
for test in test_matmul test_rms_norm; do
    "${run[@]}" "$build/bin/tests/$test" >said 2>&1 || complain "$test: $(tail -20 said)"
    tail -1 said
done

# train NAME PROGRAM OPTION...: a run whose log is in the folder NAME; what it says is in NAME.said.
train()
{
    mkdir -p "$1"
    "${@:2}" --data "$source/README.md" --layers 1 --dim 48 --heads 4 --kv-heads 2 --context 32 \
        --batch 12 --dropout 0.1 --eval-every 0 --sample-length 0 --log-every 1 --steps 40 \
        --log "$1/log.jsonl" >"$1.said" || complain "a run ends with $?: $1"
}
weights() { sed -n 's/^weights \([0-9a-f]*\).*/\1/p' "$1.said"; }
losses() { sed -n 's/.*"step": \([0-9]*\),.*"loss": \([0-9.e+-]*\),.*/\1 \2/p' "$1/log.jsonl"; }

trainer=("${run[@]}" "$build/bin/gradus-train" --checkpoint-every 20 --keep 0)
train one "${trainer[@]}" --out one --threads 1
train four "${trainer[@]}" --out four --threads 4
cp -r four resumed
rm -r resumed/step-00000040
train resumed "${trainer[@]}" --out resumed --threads 1 --resume auto
grep -q 'from *resumed.step-00000020' resumed.said || complain "not resumed: $(<resumed.said)"
for other in four resumed; do
    [[ $(weights one) && $(weights one) == "$(weights $other)" ]] ||
        complain "weights: $(weights one), but $(weights $other) of the run $other"
    cmp {one,$other}/step-00000040/model.safetensors || complain "another model: $other"
    cmp <(losses one) <(losses $other) || complain "other losses: $other"
done
echo "1 thread, 4 threads, and resumed after half of the steps: weights $(weights one)"

if [[ -x ${NATIVE_TRAIN:-} ]]; then
    train native "$NATIVE_TRAIN" --threads 2
    paste <(losses one) <(losses native) | awk '
        function size(x) { return x < 0 ? -x : x }
        { if (size($2 - $4) > most) most = size($2 - $4) }
        END { printf "%d losses, largest difference from this machine %g\n", NR, most + 0
              exit NR != 40 || most > 1e-5 }' || complain "the losses differ by more than 1e-5"
fi

exit $failed
