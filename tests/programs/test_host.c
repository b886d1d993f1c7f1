/* test_host.c - gradus-train on a hostile host: closed streams, readers that leave, files that
 * change, absurd numbers of threads, little address space. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */
#include "check_main.h"
#include "runs.h"

/* Runs a command of the shell in the folder, in which $T is the program; `status` is what it must
 * end with. What it wrote is in `output`. */
static void host(int status, const char *command)
{
    char line[2048];
    snprintf(line, sizeof line, "T='%s'; (%s) 2>&1", (const char *)GRADUS_PROGRAM, command);
    FILE *pipe = popen(line, "r");
    ck_assert_ptr_nonnull(pipe);
    output[fread(output, 1, PROGRAM_OUTPUT - 1, pipe)] = '\0';
    int found = pclose(pipe);
    ck_assert_msg(WIFEXITED(found) && WEXITSTATUS(found) == status, "%s: status 0x%x\n%s", command,
                  found, output);
}

/* ---- Streams ------------------------------------------------------------------------------- */

TEST(a_closed_stream_is_no_file_of_ours)
{
    static const char *const closed[] = {">&-", "2>&-", "<&- >&- 2>&-"};
    for (int i = 0; i < 3; i++) {
        char line[512];
        snprintf(line, sizeof line, "$T --data text $small --steps 3 --log-every 1 --out a%d %s", i,
                 closed[i]);
        host(i == 1 ? 0 : 1, line);
        snprintf(line, sizeof line, "test $(grep -c '^{.*}$' a%d/log.jsonl) = 4", i);
        host(0, line);
        snprintf(line, sizeof line, "! grep -v '^{' a%d/log.jsonl && test -e a%d/step-00000003", i,
                 i);
        host(0, line);
    }
}

TEST(a_reader_that_goes_is_like_a_signal)
{
    host(0,
         "($T --data text $small --steps 1000000 --log-every 1 --checkpoint-every 100000 --out a;"
         " echo $? >status) | head -20 >/dev/null");
    host(0, "test $(cat status) = 1 && ls a/step-*/state.safetensors");
    host(0, "$T --resume a --max-seconds 0.01 >/dev/null");
}

TEST(what_is_ignored_stays_ignored)
{
    host(0, "trap '' HUP; $T --data text $small --steps 1000000 --checkpoint-every 5 --keep 1000 "
            "--out a & "
            "until test -e a/step-00000005; do sleep 0.01; done; kill -HUP $!; sleep 0.3; "
            "kill -0 $! && kill -TERM $! && wait $!");
}

TEST(help_must_arrive)
{
    static const char *const programs[] = {"gradus-train", "gradus-sample", "gradus-eval"};
    for (int i = 0; i < 3; i++) {
        if (program_run_other(programs[i], "--version", output)) continue; /* not built */
        ck_assert_int_ne(program_run_other(programs[i], "--help >/dev/full", output), 0);
        program_said(output, "cannot write to stdout");
        ck_assert_int_ne(program_run_other(programs[i], "--version >/dev/full", output), 0);
    }
}

/* ---- Token files ---------------------------------------------------------------------------- */

TEST(a_bad_id_is_found_before_the_first_step)
{
    write_tokens("ids", 200, 6000);
    write_tokens("val", 200, 200);
    host(0, "printf '\\377\\377' | dd of=ids bs=2 seek=5555 conv=notrunc 2>/dev/null");
    host(1,
         "$T --tokens ids --val-data val --vocab 256 $small --context 8 --steps 3 --log-every 1");
    program_said(output, "ids: token 5555 is 65535, wanted less than 256");
    ck_assert_ptr_null(strstr(output, "\nstep "));
}

/* ---- Limits --------------------------------------------------------------------------------- */

TEST(absurd_numbers_of_threads)
{
    host(0, "OMP_NUM_THREADS=100000 $T --data text --steps 2 --sample-length 9");
    host(2, "$T --data text --steps 2 --threads 100000");
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { limited = 0 }; /* it takes terabytes for itself */
#else
enum { limited = 1 };
#endif

/* From too little to load a library to enough: it ends, and says why. Below the size of the
 * program, Linux ends it without a word. 130 is OpenBLAS's own end, by SIGINT and with a message,
 * where there is no room for its threads. */
TEST(little_address_space)
{
    for (int mebibytes = 20; limited && mebibytes < 600; mebibytes += 60) {
        char line[512];
        snprintf(line, sizeof line,
                 "ulimit -v $(($(wc -c <\"$T\") / 1024 + %d)); "
                 "timeout -s KILL 60 $T --data text $small --steps 1 >said 2>&1; s=$?; cat said; "
                 "test $s = 0 -o $s = 1 -o $s = 127 || "
                 "{ test $s = 130 && grep -q blas_thread_init said; }",
                 mebibytes * 1024);
        host(0, line);
        ck_assert_int_gt((int)strlen(output), 0);
    }
}

/* OpenBLAS's data take half of each thread's, CUDA's libraries more than all. */
#ifdef GD_HAVE_CUDA
#define LITTLE_STACK "ulimit -s 256; "
#else
#define LITTLE_STACK "ulimit -s 128; "
#endif

TEST(little_stack)
{
    if (!limited) return;
    host(0, LITTLE_STACK "$T --data text $small --steps 2 --vocab 300 --out deep --threads 2");
    host(0, LITTLE_STACK "$T --resume deep --steps 4 --accumulate 2 --processes 2");
    host(1, LITTLE_STACK "$T --data none $small");
    host(0, LITTLE_STACK "${T%train}sample deep --length 9; ${T%train}eval deep");
    host(0, LITTLE_STACK "${T%train}gradcheck linear norm var huber_loss add --threads 2");
    host(0, LITTLE_STACK "${T%train}gradcheck linear norm huber_loss --threads 2 --dtype f32");
    static const char *const nested[][2] = {
        {"config.json", "config.json in nested is not a JSON object: it is nested too deeply"},
        {"tokenizer.json", "nested/tokenizer.json is not a tokenizer"}};
    for (int i = 0; i < 2; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "rm -rf nested; cp -r deep/step-00000004 nested; rm -f nested/checksums.xxh3; "
                 "{ printf '{\"a\":'; printf '%%2000s' '' | tr ' ' '['; } >nested/%s; " LITTLE_STACK
                 "${T%%train}sample nested --length 9",
                 nested[i][0]);
        host(1, line);
        program_said(output, nested[i][1]);
    }
}

/* A step that fails although its estimate is below what is free: no message says that both are
 * so. */
TEST(a_dry_run_does_not_contradict_itself)
{
    bool failed = false;
    for (int mebibytes = 900; limited && mebibytes < 1600; mebibytes += 100) {
        char line[512];
        snprintf(line, sizeof line,
                 "ulimit -v %d; $T --data text --dry-run --threads 1 --dim 128 --layers 4 "
                 "--context 16 --batch 2048 >said 2>&1; cat said; "
                 "sed -n 's/.*needs about \\(.*\\) GiB, but \\(.*\\) GiB are free.*/\\1 \\2/p' "
                 "said | awk '$1 < $2 { exit 1 }'",
                 mebibytes * 1024);
        host(0, line);
        failed = failed || strstr(output, "which could not be allocated");
    }
    ck_assert(failed || !limited);
}

CHECK_MAIN_UNLESS(program_missing("gradus-train"), "host", set_up, leave_folder)
