#!/usr/bin/env bash
# failing_run.sh - runs of gradus-train in which one allocation fails: the first, or the one STRIDE
# after it, and so on to the last. One run begins, another goes on from a checkpoint, which --keep 1
# then removes. A checkpoint that is there afterwards is whole, to the last bit; the older one only
# goes when the newer one is there; a run that says that all went well has saved its last step. One that
# had no memory for the next batch has saved the step before: a run that goes on from there has the same
# last step as all others.
#   failing_run.sh GRADUS_TRAIN PRELOAD FOLDER [STRIDE [JOBS]]
set -euo pipefail
train=$(realpath "$1") preload=$(realpath "$2") stride=${4:-1} jobs=${5:-$(nproc)}
rm -rf "$3"
mkdir -p "$3"
cd "$3"
top=$PWD
export OMP_NUM_THREADS=1 train preload stride jobs top
for ((i = 0; i < 300; i++)); do echo "$((i * i % 97)) abc"; done >text
small=(--data "$top/text" --vocab 300 --layers 1 --dim 4 --heads 2 --ffn 4 --context 4 --batch 1 --eval-every 0
    --sample-length 0 --log-every 1 --threads 1 --keep 1 --out a)

# run KIND ALLOCATION: in the folder of a job; -1: none fails.
run()
{
    local command=("${small[@]}" --steps 2)
    rm -rf a
    if [[ $1 == go_on ]]; then
        cp -r "$top/first" a
        command=(--resume auto --steps 4 --out a)
    fi
    FAILING_MALLOC=$2 FAILING_MALLOC_COUNT=count LD_PRELOAD=$preload \
        "$train" "${command[@]}" >said 2>&1
}

# What is wrong after such a run with this status.
faults()
{
    local kind=$1 status=$2 step last=step-00000002
    [[ $kind == begin ]] || last='step-00000004'
    ((status < 3 || status > 128)) || echo "status $status"
    ((status <= 128)) || echo "ended by signal $((status - 128))"
    ((status)) || [[ -e a/$last ]] || echo "all went well, but there is no $last"
    if [[ -e a/step-00000001 || -e a/step-00000003 ]]; then
        ((status)) || echo "it ended in the middle, without a fault"
        "$train" --resume auto --steps "${last: -1}" --out a >said.on 2>&1 || tail -1 said.on
        [[ -e a/$last ]] || echo "no run goes on from its checkpoint"
    fi
    [[ $kind == begin || -e a/step-00000002 || -e a/step-00000004 ]] || echo "both are gone"
    for step in a/step-00000002 a/step-00000004; do
        [[ ! -e $step ]] || diff -rq "$step" "$top/wanted/${step#a/}" 2>&1 || true
    done
}

# Every JOBS-th of the allocations, from the number JOB on.
work()
{
    local kind=$1 job=$2 calls=$3 n=0 good=0 k status found
    mkdir -p "$top/job.$job"
    cd "$top/job.$job"
    for ((k = job * stride; k < calls; k += jobs * stride)); do
        status=0
        run "$kind" "$k" || status=$?
        n=$((n + 1))
        ((status)) || good=$((good + 1))
        found=$(faults "$kind" "$status")
        [[ ! $found ]] || echo "$kind: allocation $k of $calls: $found; $(tail -1 said)"
    done
    echo "$n runs, $good in which it did not matter" >>"$top/$kind.done"
}

small_text=$(printf '%q ' "${small[@]}")
export small_text
export -f run faults work

declare -A calls
run begin -1
cp -r a first
calls[begin]=$(<count)
mkdir wanted
cp -r a/step-00000002 wanted/
run go_on -1
calls[go_on]=$(<count)
cp -r a/step-00000004 wanted/

for kind in begin go_on; do
    for ((job = 0; job < jobs; job++)); do
        echo "$job"
    done | xargs -P "$jobs" -I '{}' bash -c \
        "eval \"small=(\$small_text)\"; work $kind {} ${calls[$kind]}" | tee -a faults
    echo "$kind: of ${calls[$kind]} allocations, $(paste -sd+ <"$kind.done" | sed 's/+/ and /g')"
done
[[ ! -s faults ]]
