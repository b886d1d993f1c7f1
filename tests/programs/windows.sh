#!/usr/bin/env bash
# The programs of a build for Windows: what differs there.
#   tests/programs/windows.sh BIN WORK_DIR [RUNNER]     BIN has the programs; RUNNER runs them, such as wine
set -euo pipefail
bin=$(realpath "$1") work=$2 run=(${3:+"$3"})
rm -rf "$work"
mkdir -p "$work/ein Ordner mit ü und 漢"
cd "$work/ein Ordner mit ü und 漢"

failed=0
complain()
{
    echo "windows.sh: $*"
    failed=1
}
program() # NAME ARGUMENT...
{
    "${run[@]}" "$bin/gradus-$1.exe" "${@:2}"
}

small=(--layers 1 --dim 16 --heads 2 --context 16 --batch 4 --eval-every 0 --sample-length 20
    --dropout 0.1 --threads 2)

# ---- Names and line ends ----------------------------------------------------------------------

for ((i = 0; i < 200; i++)); do
    printf 'Zeile %d: Größe, 漢字 and plain words\r\n' "$i"
done >'täxt 字.txt'
printf 'steps = 40\r\ncheckpoint-every = 20\r\nkeep = 0\r\n' >'options für alle'

program train --config 'options für alle' --data 'täxt 字.txt' "${small[@]}" --out 'gerade läufe\tief' \
    >straight || complain "a run ends with $?"
# Below them is a sample, in which the model may write what it read.
head -2 straight | grep -q $'\r' && complain "lines end with CR LF"
grep -q 'täxt 字.txt' straight || complain "a name is not shown in UTF-8: $(head -2 straight)"
[[ -e 'gerade läufe/tief/step-00000040/model.safetensors' ]] || complain "no checkpoint: $(ls -R .)"
grep -q $'\r' 'gerade läufe/tief/log.jsonl' && complain "the log has CR LF"
hash=$(sed -n 's/.*"text_hash": "\([0-9a-f]*\)".*/\1/p' 'gerade läufe/tief/log.jsonl')
[[ ! -x ${NATIVE_TRAIN:-} ]] || {
    "$NATIVE_TRAIN" --config 'options für alle' --data 'täxt 字.txt' "${small[@]}" --steps 0 \
        --log native.jsonl >/dev/null
    grep -q "$hash" native.jsonl || complain "the text has other bytes than on Linux: $hash"
}

# ---- Resuming ---------------------------------------------------------------------------------

weights() { sed -n 's/^weights \([0-9a-f]*\).*/\1/p' "$1"; }
cp -r 'gerade läufe/tief' resumed
rm -r resumed/step-00000040
program train --data 'täxt 字.txt' --out resumed --resume auto >again || complain "resuming: $?"
grep -q 'from *resumed.step-00000020' again || complain "not resumed: $(<again)"
[[ $(weights straight) && $(weights straight) == "$(weights again)" ]] ||
    complain "resumed weights $(weights again), straight $(weights straight)"
cmp 'gerade läufe/tief/step-00000040/model.safetensors' resumed/step-00000040/model.safetensors ||
    complain "the resumed model differs"
cmp <(cut -d, -f1-6 'gerade läufe/tief/log.jsonl' | tail -1) <(cut -d, -f1-6 resumed/log.jsonl | tail -1) ||
    complain "the resumed log differs"

program sample --model 'gerade läufe\tief' --length 20 --seed 3 >sampled || complain "sampling: $?"
program eval --model 'gerade läufe/tief' --data 'täxt 字.txt' >evaluated || complain "evaluating: $?"
program gradcheck --json sum >checked || complain "gradcheck: $?"
grep -q '"largest_error": [0-9.e-]*,' checked || complain "gradcheck --json: $(head -c 300 checked)"

# ---- The console ------------------------------------------------------------------------------

cp 'täxt 字.txt' text

# at_console COMMAND...: with a terminal, which wine shows programs as a console of Windows; prints
# what is on it, without the escape sequences that draw it.
at_console()
{
    local quoted
    printf -v quoted '%q ' "$@"
    script -qec "stty cols 150 rows 60; $quoted" /dev/null </dev/null 2>&1 |
        sed 's/\x1b\[[0-9;?]*[a-zA-Z]//g; s/\r//g'
}

if ! command -v script >/dev/null; then
    echo "windows.sh: without util-linux's script there is no console to test"
else
    at_console "${run[@]}" "$bin/gradus-train.exe" --data 'täxt 字.txt' "${small[@]}" --steps 2 >shown
    grep -q 'text   täxt 字.txt: ' shown || complain "the console shows: $(head -3 shown)"

    # Ctrl-C: the run saves, and goes on from there as if nothing had been.
    long=(--data text "${small[@]}" --steps 300 --checkpoint-every 20)
    program train "${long[@]}" --out whole >straight || complain "a run ends with $?"
    at_console "${run[@]}" "$bin/tests/beside.exe" ctrl-c stopped/step-00000020/config.json \
        "$bin/gradus-train.exe" "${long[@]}" --out stopped >shown || true
    grep -q 'stopped by a signal' shown || complain "Ctrl-C: $(tail -3 shown)"
    [[ ! -e stopped/step-00000300 ]] || complain "Ctrl-C came too late"
    program train --data text --out stopped --resume auto >again || complain "after Ctrl-C: $?"
    [[ $(weights straight) && $(weights straight) == "$(weights again)" ]] ||
        complain "weights after Ctrl-C $(weights again), straight $(weights straight)"
    # The checkpoint that it came from is not needed any more, and not kept.
    [[ $(ls stopped) == $'log.jsonl\nstep-00000280\nstep-00000300' ]] || complain "kept: $(ls stopped)"
fi

# ---- What another program has open ------------------------------------------------------------

held() # SENTENCE FILE PROGRAM ARGUMENT...
{
    "${run[@]}" "$bin/tests/beside.exe" hold "$2" "$bin/gradus-$3.exe" "${@:4}" >said 2>&1 || true
    grep -q "$1" said || complain "with $2 open: $(tail -3 said)"
}
program train --data text "${small[@]}" --steps 20 --keep 1 --out first >/dev/null
cp -r first second
held 'could not be removed: it is kept as first/step-00000020.rest' \
    first/step-00000020/model.safetensors train --data text --out first --resume auto --steps 40
[[ -e first/step-00000040/model.safetensors ]] || complain "no checkpoint: $(ls first)"
cmp first/step-00000020.rest/model.safetensors second/step-00000020/model.safetensors ||
    complain "a checkpoint that was open has changed"
held 'cannot write the log second/log.jsonl: Permission denied' \
    second/log.jsonl train --data text --out second --resume auto --steps 40
[[ $(ls second) == $'log.jsonl\nstep-00000020' ]] || complain "after a refusal: $(ls second)"

# ---- Refusals ---------------------------------------------------------------------------------

refused() # STATUS SENTENCE PROGRAM ARGUMENT...
{
    local said status=0
    said=$(program "${@:3}" 2>&1 >/dev/null) || status=$?
    [[ $status == "$1" && $said == *"$2"* ]] || complain "${*:3}: status $status, said: $said"
}
refused 2 'there are no runs of several processes on this system' \
    train --data 'täxt 字.txt' --processes 2 "${small[@]}" --steps 1
RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29999 \
    refused 1 'there are no groups of several processes on this system' \
    train --data 'täxt 字.txt' "${small[@]}" --steps 1
refused 1 'No such file or directory' train --data 'kein täxt' "${small[@]}"
mkdir folder
refused 1 'Is a directory' train --data folder "${small[@]}"
touch file
refused 1 'Not a directory' train --data 'täxt 字.txt' "${small[@]}" --steps 1 --out 'file\below'

# The disk is full.
if [[ -c /dev/full ]]; then
    status=0
    said=$(program gradcheck sum 2>&1 >/dev/full) || status=$?
    [[ $status == 2 && $said == *'cannot write to stdout'* ]] || complain "full: $status, $said"
fi

((failed)) || echo "the programs run: names, line ends, resuming, the console, open files, refusals, a full disk"
exit $failed
