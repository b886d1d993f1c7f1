/* test_keep_best.c - gradus-train --keep-best: the checkpoint of the best validation stays. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */
#include "check_main.h"
#include "runs.h"

#include <math.h>

/* The step of the lowest validation in a log, and how many validations there are. */
static long long best_in_log(const char *run, int *validations)
{
    char path[128], line[1024];
    double best = INFINITY;
    long long best_step = 0;
    snprintf(path, sizeof path, "%s/log.jsonl", run);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    *validations = 0;
    while (fgets(line, sizeof line, file)) {
        const char *step = strstr(line, "{\"step\": "), *val = strstr(line, "\"val\": ");
        if (!step || !val || !strncmp(val + 7, "null", 4)) continue;
        ++*validations;
        const double loss = strtod(val + 7, NULL);
        if (loss < best) best = loss, best_step = atoll(step + 9);
    }
    fclose(file);
    return best_step;
}

/* The link leads to that step, which is a model; with --keep 1 only the last is kept besides. */
static void check_best(const char *run, long long best, long long last)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "step-%08lld", best);
    shell("test \"$(readlink %s/best)\" = %s", run, wanted);
    shell("ls %s/best/model.safetensors >/dev/null", run);
    shell("test $(ls -d %s/step-* | wc -l) = %d", run, best == last ? 1 : 2);
}

/* A run that overfits one batch has its best validation early. */
static const char wild[] =
    "--data text $small --eval-every 2 --checkpoint-every 5 --keep 1 --lr 0.03 "
    "--schedule constant --warmup 0 --overfit-one-batch";

TEST(the_best_validation_stays)
{
    int validations;
    train_well("%s --steps 40 --keep-best --out a", wild);
    const long long best = best_in_log("a", &validations);
    ck_assert_int_eq(validations, 20);
    ck_assert_int_lt(best, 40); /* or this shows nothing */
    check_best("a", best, 40);
    train_well("--data text --init a/best --steps 0"); /* it is a model like any other */
    program_said(output, "from   a/best\n");
}

/* A resumed run knows the best validation so far. */
TEST(a_resumed_run_knows_the_best)
{
    int validations;
    train_well("%s --steps 40 --keep-best --out a", wild);
    const long long best = best_in_log("a", &validations);
    for (int stop = 10; stop <= 30; stop += 10) {
        shell("rm -rf b");
        train_well("%s --steps %d --keep-best --out b", wild, stop);
        train_well("--resume auto --out b --steps 40");
        ck_assert_int_eq(best_in_log("b", &validations), best);
        check_best("b", best, 40);
    }
}

/* The run ends after as many validations that were not better, resumed or not. */
TEST(patience_ends_a_run)
{
    char step[32];
    int validations;
    train_well("%s --steps 40 --patience 3 --keep-best --out a", wild);
    const long long best = best_in_log("a", &validations);
    ck_assert_int_eq(validations, best / 2 + 3);
    ck_assert_int_lt(validations, 20);
    check_best("a", best, best + 6);
    program_said(output, "--patience 3 ends the run: the best validation was ");
    snprintf(step, sizeof step, ", at step %lld\n", best);
    program_said(output, step);
    train_well("%s --steps %lld --patience 3 --out b", wild, best + 4);
    train_well("--resume auto --out b --steps 40");
    ck_assert_int_eq(best_in_log("b", &validations), best);
    ck_assert_int_eq(validations, best / 2 + 3);
}

/* The sequences of an epoch are those of 12 tokens that the text has, but for one. */
TEST(epochs_count_steps)
{
    long long tokens = 0, steps = 0, batch = 0;
    train_well("--data text $small --epochs 2.5 --dry-run");
    const char *text = strstr(output, "text: "), *train = strstr(output, "\ntrain ");
    ck_assert(text && sscanf(text, "text: %lld tokens", &tokens) == 1);
    ck_assert(train && sscanf(train, "\ntrain %lld steps of 1 x %lld x 12", &steps, &batch) == 2);
    ck_assert_int_eq(steps, (long long)ceil(2.5 * (double)((tokens - 1) / 12 - 1) / (double)batch));
}

/* A signal during a validation ends the run after its step; the resumed run makes up for it. */
TEST(a_validation_that_a_signal_ends_is_made_later)
{
    static const char run[] =
        "--data text --val-data long $small --eval-every 3 --checkpoint-every 100 "
        "--log-every 1 --steps 6 --lr 0.03 --keep-best";
    int validations;
    shell("for i in %s; do cat text text text; done >long",
          test_brief() ? "1 2" : "1 2 3 4 5 6 7 8 9 10"); /* a sanitizer is slow enough */
    train_well("%s --out a", run);
    const long long best = best_in_log("a", &validations);
    ck_assert_int_eq(validations, 2);
    for (int step = 3; step <= 6; step += 3) {
        pid_t child = begin("%s --out b", run);
        shell("until grep -q '\"step\": %s,' b/log.jsonl; do sleep 0.01; done 2>/dev/null",
              step == 3 ? "2" : "5");
        nap(100);
        stop_well(child, SIGINT);
        best_in_log("b", &validations);
        ck_assert_int_eq(validations, step / 3 - 1); /* or this shows nothing */
        for (int again = 0; again < 2; again++) {    /* from the same step, if that is the last */
            train_well("--resume auto --out b");
            ck_assert_int_eq(best_in_log("b", &validations), best);
            ck_assert_int_eq(validations, 2);
        }
        shell("cmp a/best/model.safetensors b/best/model.safetensors");
        shell("test $(readlink a/best) = $(readlink b/best)");
        shell("rm -r b");
    }
}

CHECK_MAIN_UNLESS(program_missing("gradus-train"), "the best checkpoint", set_up, leave_folder)
