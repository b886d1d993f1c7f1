/* test_train_optimizers.c - gradus-train --optimizer and --average: each learns, is resumed with
 * the same bits, by any number of processes, and only by its like; and the average is what
 * gradus-eval and gradus-sample find. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */
#include "check_main.h"
#include "runs.h"

#include <math.h>

static const char *const kinds[] = {
    "adamw",   "adam", "sgd", "sgd --momentum 0", "rmsprop", "rmsprop --momentum 0.5",
    "adagrad", "lion", "muon"};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const char tiny[] = "--layers 2 --dim 16 --heads 4 --kv-heads 2 --ffn 24 --context 12 "
                           "--batch 4 --warmup 4 --sample-length 0 --threads 1 --log-every 1000";

/* The validation loss that the run ended with. */
static double last_loss(void)
{
    const char *at = output, *found = NULL;
    while ((at = strstr(at, "validation loss "))) found = at += strlen("validation loss ");
    ck_assert_msg(found != NULL, "%s", output);
    return strtod(found, NULL);
}

static void run(const char *kind, const char *more)
{
    train_well("%s --optimizer %s %s", tiny, kind, more);
}

TEST_CASE("learning", set_up, leave_folder)

/* The text repeats itself, and chance is log 4. */
LOOP_TEST(each_learns, KINDS)
{
    shell("for i in $(seq 2000); do printf abcd; done >turns");
    run(kinds[_i], "--data turns --steps 200");
    ck_assert_msg(last_loss() < 0.5, "%s: %g", kinds[_i], last_loss());
}

TEST_CASE("resuming", set_up, leave_folder)

/* 16 steps, or 8 and 8 more: every file of the checkpoint is the same, the average included. */
LOOP_TEST(a_resumed_run_has_the_same_bits, test_rounds(4 * KINDS))
{
    static const char *const dtypes[] = {"f32", "bf16", "f64", "f16"};
    const int number = test_brief() ? 4 * _i + _i % 4 : _i; /* one dtype of each kind */
    char more[256];
    snprintf(more, sizeof more,
             "--data text --dropout 0.1 --dtype %s --average 0.9 --steps 16 --checkpoint-every 8 "
             "--keep 0 --out a",
             dtypes[number % 4]);
    run(kinds[number / 4], more);
    train_well("--resume a/step-00000008 --out b");
    shell("diff -r a/step-00000016 b/step-00000016 && rm -r a b");
}

TEST_CASE("averages", set_up, leave_folder)

/* Each process has a part of the states; a run goes on with another number of them. */
LOOP_TEST(processes_divide_the_state, KINDS - 1)
{
    run(kinds[_i], "--data text --average 0.9 --steps 8 --dtype f64 --accumulate 2 --out a");
    const double loss = last_loss();
    run(kinds[_i], "--data text --average 0.9 --steps 8 --dtype f64 --accumulate 2 --processes 2 "
                   "--checkpoint-every 4 --keep 0 --out b");
    ck_assert_double_eq_tol(last_loss(), loss, 1e-4);
    train_well("--resume b/step-00000004 --out c");
    ck_assert_double_eq_tol(last_loss(), loss, 1e-4);
}

TEST(another_optimizer_is_refused)
{
    run("lion", "--data text --steps 2 --out a");
    train_badly(
        "--resume auto --out a --steps 4 --optimizer adamw",
        "--optimizer is adamw, but the run in a/step-00000002 was trained with lion; --init");
    train_well("--resume auto --out a --steps 4 --optimizer lion");
    program_said(output, "Lion, weight decay 0.3");
    train_well("--resume auto --out a --steps 6");
    program_said(output, "Lion, weight decay 0.3");
    run("adamw", "--data text --steps 2 --out b");
    train_badly("--resume auto --out b --steps 4 --optimizer muon", "was trained with adamw");
    train_badly("--data text --optimizer muon --processes 2", "muon needs whole matrices");
}

/* ---- The average -------------------------------------------------------------------------- */

static double loss_of(const char *arguments)
{
    const int status = program_run_other("gradus-eval", arguments, output);
    ck_assert_msg(status == 0, "%s: %s", arguments, output);
    const char *loss = strstr(output, "\"loss\": ");
    ck_assert_ptr_nonnull(loss);
    return strtod(loss + strlen("\"loss\": "), NULL);
}

/* With a decay that forgets at once it is the weights; otherwise another model. */
TEST(the_average_is_evaluated)
{
    run("adamw", "--data text --steps 30 --average 0.000001 --out a --dtype f64");
    ck_assert_double_eq_tol(loss_of("a --json --average"), loss_of("a --json"), 1e-6);
    run("adamw", "--data text --steps 30 --average 0.9 --out b");
    ck_assert_double_ge(fabs(loss_of("b --json --average") - loss_of("b --json")), 1e-4);
    ck_assert_int_eq(program_run_other("gradus-sample", "b --average --length 5", output), 0);
    run("adamw", "--data text --steps 2 --out c");
    ck_assert_int_eq(program_run_other("gradus-eval", "c --average", output), 1);
    program_said(output, "c/step-00000002 has no average of its weights; gradus-train --average");
    /* A run may begin to keep one: as its weights. */
    const double before = loss_of("c --json");
    train_well("--resume auto --out c --steps 3 --average 0.999999");
    train_well("--resume auto --out c --steps 4");
    program_said(output, "average 0.999999");
    ck_assert_double_eq_tol(loss_of("c --json --average"), before, 1e-4);
}

CHECK_MAIN("optimizers of gradus-train")
