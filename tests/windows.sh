#!/usr/bin/env bash
# The programs of a build for Windows: what differs there.
#   tests/windows.sh BIN WORK_DIR [RUNNER]     BIN has the programs; RUNNER runs them, such as wine
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

((failed)) || echo "the programs run: names, line ends, resuming, refusals, a full disk"
exit $failed
