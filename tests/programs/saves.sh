#!/usr/bin/env bash
# saves.sh - saving and resuming when calls of the system fail, by strace's fault injection, and the
# order in which they reach the disk. scripts/torture-saves interrupts every call of a save, and here
# those that rename.
#   saves.sh GRADUS_TRAIN FOLDER
set -euo pipefail
root=$(realpath "$(dirname "$0")/../..")
train=$(realpath "$1")
rm -rf "$2"
mkdir -p "$2"
cd "$2"
if ! strace -o /dev/null true 2>/dev/null; then
    echo "saves: there is no strace, or it may not trace here: skipped"
    exit 77
fi
export OMP_NUM_THREADS=1
for ((i = 0; i < 2000; i++)); do echo "$((i * i % 97)) abc"; done >text
small=(--data text --layers 1 --dim 8 --heads 2 --ffn 16 --context 8 --batch 2 --eval-every 0
    --sample-length 0 --log-every 1 --warmup 2 --dropout 0.1 --threads 1)

fail()
{
    echo "saves: $*" >&2
    [[ ! -s said ]] || tail -3 said >&2
    exit 1
}

# ---- Reading the newest checkpoint ----------------------------------------------------------------

# A call that fails is no damage: the run stops and says why, or it was not needed. It never goes on
# from an older checkpoint, and the newest one stays.
"$train" "${small[@]}" --steps 8 --checkpoint-every 4 --keep 0 --out first >/dev/null
cp -r first run
"$train" --resume auto --steps 12 --out run >said
grep -q '^from .*step-00000008$' said || fail "the newest is not taken"
mv run/step-00000012 wanted

newest=$PWD/run/step-00000008
files=(-P "$newest")
for name in config.json model.safetensors state.safetensors tokenizer.json tokenizer_config.json \
    checksums.xxh3; do
    files+=(-P "$newest/$name")
done
errors=(EIO ESTALE EMFILE ENFILE ENOMEM EACCES EINTR)
runs=0 refused=0

# try_reading CALL STEP PATH...: every STEP-th such call on these paths, with the errors in turn.
try_reading()
{
    local call=$1 step=$2 many n what status
    shift 2
    rm -rf run && cp -r first run
    strace -f -o trace -e trace="$call" "$@" "$train" --resume auto --steps 12 --out run >said 2>&1
    many=$(grep -c " $call(" trace || true)
    ((many > 0)) || fail "no $call"
    for ((n = 1; n <= many; n += step)); do
        rm -rf run && cp -r first run
        what=${errors[runs % ${#errors[@]}]}
        runs=$((runs + 1)) status=0
        strace -f -o trace -e inject="$call:error=$what:when=$n" "$@" \
            "$train" --resume auto --steps 12 --out run >said 2>&1 || status=$?
        ! grep -q ' is skipped: ' said || fail "$what at $call $n counts as damage"
        diff -rq first/step-00000008 run/step-00000008 >said.diff ||
            fail "$what at $call $n changes the newest checkpoint"
        if ((status)); then
            refused=$((refused + 1))
            ((status == 1)) || fail "$what at $call $n: status $status"
            [[ -s said ]] || fail "$what at $call $n: no reason"
        else
            diff -rq wanted run/step-00000012 >said.diff || fail "$what at $call $n: other bits"
        fi
    done
}
try_reading openat 1 "${files[@]}"
try_reading pread64 2 "${files[@]}"
try_reading fcntl 3 "${files[@]}"
try_reading newfstatat 3 "${files[@]}"
try_reading openat 3 -P "$PWD/run"
try_reading getdents64 1 -P "$PWD/run"
((refused > 20)) || fail "only $refused of $runs runs have noticed"
echo "reading: $runs calls failed, $refused runs stopped, none went back"

# ---- Without RENAME_EXCHANGE -----------------------------------------------------------------------

over=("$train" --resume run/step-00000004 --steps 8 --out run)
for what in EINVAL ENOSYS EOPNOTSUPP EPERM; do
    rm -rf run && cp -r first run
    strace -f -o trace -e trace=renameat2 -e inject="renameat2:error=$what" "${over[@]}" >said 2>&1 ||
        fail "$what: the step is not saved again"
    grep -q INJECTED trace || fail "no renameat2"
    diff -rq first/step-00000008 run/step-00000008 >said.diff || fail "$what: another checkpoint"
    [[ $(find run -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | xargs) == \
    'log.jsonl log.jsonl.old step-00000004 step-00000008' ]] || fail "$what: something is left"
done

# Killed before each rename, and failing there: the old one or the new one is there afterwards.
"$root/scripts/torture-saves" "$(dirname "$train")/.." renameat >said 2>&1 || fail "torture-saves: $(<said)"
echo "without RENAME_EXCHANGE: saved, and never gone"

# ---- The order on the disk -------------------------------------------------------------------------

# Each new folder is flushed into its parent, each file and then its folder before that is renamed,
# and the parent after each rename, before anything is unlinked.
in_order()
{
    awk '
        function path_of(text) { sub(/^[^<]*</, "", text); sub(/>.*/, "", text); return text }
        function wrong(why) { print "line " NR ": " why ": " $0; bad = 1 }
        / = -1 / || !/\(/ { next }
        / fsync\(/ {
            path = path_of($0)
            if (pending != "" && path != pending) wrong("wanted first: fsync of " pending)
            pending = ""
            flushed = path
            next
        }
        pending != "" { wrong("wanted first: fsync of " pending); pending = "" }
        / mkdir\(|mkdirat\(AT_FDCWD/ {
            path = $0; sub(/^[^"]*"/, "", path); sub(/".*/, "", path)
            path = here "/" path; sub(/\/[^\/]*$/, "", path)
            pending = path; made++
        }
        / renameat2?\(/ {
            if (/"\.saving"/ && flushed !~ /\/\.saving$/) wrong("wanted first: fsync of .saving")
            pending = path_of($0); renamed++
        }
        / unlinkat\(/ { removed++ }
        END {
            if (pending != "") { print "at the end: no fsync of " pending; bad = 1 }
            print made + 0, renamed + 0, removed + 0
            exit bad
        }' here="$PWD" trace >order || fail "$1: $(<order)"
}
calls=(-f -y -o trace -e "trace=mkdir,mkdirat,fsync,renameat,renameat2,unlinkat")
strace "${calls[@]}" "$train" "${small[@]}" --steps 4 --checkpoint-every 2 --keep 1 --out p/q/r \
    >said 2>&1
in_order "a new run"
[[ $(tail -1 order) == "3 3 "* ]] || fail "a new run: $(<order)"
rm -rf run && cp -r first run
strace "${calls[@]}" "${over[@]}" --keep 1 >said 2>&1
in_order "over an old checkpoint"
[[ $(tail -1 order) == "0 2 "* ]] || fail "over an old checkpoint: $(<order)"
rm -rf run && cp -r first run
strace "${calls[@]}" -e inject=renameat2:error=EINVAL "${over[@]}" --keep 1 >said 2>&1
grep -v 'renameat(.*"\.replaced' trace >trace.two || true # the first of two is flushed with the second
mv trace.two trace
in_order "in two renames"
echo "the order on the disk: as it must be"
