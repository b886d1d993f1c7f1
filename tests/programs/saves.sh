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

# traced STRACE_OPTION... -- PROGRAM...: in a copy of the first run.
traced()
{
    rm -rf run && cp -r first run
    strace -f -o trace "$@" >said 2>&1
}

# ---- Reading the newest checkpoint ----------------------------------------------------------------

# A call that fails is no damage: the run stops and says why, or it was not needed. It never goes on
# from an older checkpoint, and the newest one stays.
"$train" "${small[@]}" --steps 8 --checkpoint-every 4 --keep 0 --out first >/dev/null
go_on=("$train" --resume auto --steps 12 --out run)
traced -e trace=none "${go_on[@]}"
grep -q '^from .*step-00000008$' said || fail "the newest is not taken"
mv run/step-00000012 wanted
errors=(EIO ESTALE EMFILE ENFILE ENOMEM EACCES EINTR)
runs=0 refused=0

# try_reading CALL STEP PATH...: every STEP-th such call on these paths, with the errors in turn.
try_reading()
{
    local call=$1 step=$2 many n what status
    shift 2
    traced -e trace="$call" "${@/#/-P$PWD/run}" "${go_on[@]}"
    many=$(grep -c " $call(" trace) || fail "no $call"
    for ((n = 1; n <= many; n += step)); do
        what=${errors[runs++ % ${#errors[@]}]} status=0
        traced -e inject="$call:error=$what:when=$n" "${@/#/-P$PWD/run}" "${go_on[@]}" || status=$?
        what="$what at $call $n"
        ! grep -q ' is skipped: ' said || fail "$what counts as damage"
        diff -rq {first,run}/step-00000008 >differs || fail "$what changes the newest checkpoint"
        if ((status)); then
            [[ $status == 1 && -s said ]] || fail "$what: status $status, or no reason"
            refused=$((refused + 1))
        else
            diff -rq wanted run/step-00000012 >differs || fail "$what: other bits"
        fi
    done
}
newest=(/step-00000008{,/{config.json,model.safetensors,state.safetensors,tokenizer.json}}
    /step-00000008/{tokenizer_config.json,checksums.xxh3})
try_reading openat 1 "${newest[@]}"
try_reading pread64 2 "${newest[@]}"
try_reading fcntl 3 "${newest[@]}"
try_reading newfstatat 3 "${newest[@]}"
try_reading openat 3 ""
try_reading getdents64 1 ""
((refused > 20)) || fail "only $refused of $runs runs have noticed"
echo "reading: $runs calls failed, $refused runs stopped, none went back"

# ---- Saving ----------------------------------------------------------------------------------------

# in_order MADE RENAMED: so many folders and renames were traced; each new folder is flushed into its
# parent, each file and then its folder before that is renamed, and the parent after each rename,
# before anything is unlinked. Of two renames in place of one exchange the second flush is that of both.
in_order()
{
    [[ $(awk '
        function path_of(text) { sub(/^[^<]*</, "", text); sub(/>.*/, "", text); return text }
        function wrong(why) { print "line " NR ": wanted first: fsync of " why ": " $0 }
        / = -1 / || !/\(/ { next }
        / fsync\(/ {
            flushed = path_of($0)
            if (pending != "" && flushed != pending) wrong(pending)
            pending = ""
            next
        }
        pending != "" { wrong(pending); pending = "" }
        / mkdir\(|mkdirat\(AT_FDCWD/ {
            path = $0; sub(/^[^"]*"/, "", path); sub(/".*/, "", path)
            path = here "/" path; sub(/\/[^\/]*$/, "", path)
            pending = path; made++
        }
        / renameat.*"\.replaced/ && / renameat\(/ { next }
        / renameat2?\(/ {
            if (/"\.saving"/ && flushed !~ /\/\.saving$/) wrong(".saving")
            pending = path_of($0); renamed++
        }
        END { if (pending != "") wrong(pending); print made + 0, renamed + 0 }
    ' here="$PWD" trace | tee order) == "$1 $2" ]] || fail "order: $(<order)"
}
calls=(-y -e "trace=mkdir,mkdirat,fsync,renameat,renameat2,unlinkat")
traced "${calls[@]}" "$train" "${small[@]}" --steps 4 --checkpoint-every 2 --keep 1 --out p/q/r
in_order 3 3

# Over an old checkpoint of the same step; also where the file system cannot exchange names.
for error in "" EINVAL ENOSYS EOPNOTSUPP EPERM; do
    traced "${calls[@]}" ${error:+-e inject=renameat2:error=$error} \
        "$train" --resume run/step-00000004 --steps 8 --out run || fail "$error: not saved again"
    [[ ! $error ]] || grep -q INJECTED trace || fail "no renameat2"
    diff -rq {first,run}/step-00000008 >differs || fail "$error: another checkpoint"
    [[ $(find run -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | xargs) == \
    'log.jsonl log.jsonl.old step-00000004 step-00000008' ]] || fail "$error: something is left"
    in_order 0 1
done
echo "saved over a checkpoint, in the order that the disk needs"

# Killed before each rename, and failing there: the old one or the new one is there afterwards.
"$root/scripts/torture-saves" "$(dirname "$train")/.." renameat >said 2>&1 || fail "torture-saves: $(<said)"
