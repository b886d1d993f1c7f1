/* main.c - gradus-gradcheck: checks the gradients of the library's ops. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradus/gradcheck.h"
#include "platform/process.h"
#include "programs/guess.h"
#include "programs/options.h"
#include "programs/spin.h"
#include "programs/terminal.h"

/* ---- The command line --------------------------------------------------------------------- */

typedef struct settings {
    options base;
    const char *ops, *load, *only_case, *only_input;
    int dtype_name;
    int64_t seed, seeds, order, at; /* at: -1: all elements */
    double step;
    bool json, verbose, record, list;

    gd_dtype dtype;
    gd_gradcheck_options check;
} settings;

enum { WRONG_CALL = 2 };

#define AT(field) offsetof(settings, field)

static const option_row rows[OPTIONS_MOST] = {
    {.help = "What to check"},
    {OPTION_TEXTS, "op", AT(ops), .help = "OP...  these ops; \"--op\" may be left out (all)"},
    {OPTION_PATH, "load", AT(load),
     .help = "FILE  the ops of a shared object: const gd_op *const gradus_ops[] = {&cube, NULL}"},
    {OPTION_TEXT, "case", AT(only_case), .help = "CASE  this case only, of the ops that have it"},
    {OPTION_TEXT, "input", AT(only_input),
     .help = "INPUT  this input only, in the cases that have it"},
    {OPTION_WHOLE, "at", AT(at), NULL, 0, 9e18,
     .help =
         "N  and this element of it only, by its place in memory; needs OP, --case and --input"},
    {.help = "How"},
    {OPTION_CHOICE, "dtype", AT(dtype_name), "f64",
     .help = "f64|f32|f16|bf16|float64|float32|float16|bfloat16  type of the inputs"},
    {OPTION_CHOICE, "device", AT(base.device), "cpu", .help = "cpu|cuda  where to run"},
    {OPTION_WHOLE, "order", AT(order), "1", 1, 3,
     .help = "N  2: check the gradient of the gradient, 3: and the gradient of that"},
    {OPTION_WHOLE, "seed", AT(seed), "0", 0, 9e18, .help = "S  of the inputs and cotangents"},
    {OPTION_WHOLE, "seeds", AT(seeds), "1", 1, 9e18, .help = "N  check N seeds, starting at S"},
    {OPTION_NUMBER, "step", AT(step), NULL, 1e-300, 1e300,
     .help = "H  relative to the scale of the input (1e-5; f32: 1e-2)"},
    {OPTION_WHOLE, "threads", AT(base.threads), "1", 1, 4096,
     .help = "N  of the CPU: the cases are small"},
    {.help = "What to print"},
    {OPTION_SWITCH, "json", AT(json),
     .help =
         "  one line of JSON for each op, case and seed; a line with an empty case is about all "
         "cases of the op"},
    {OPTION_SWITCH, "verbose", AT(verbose),
     .help = "  details of every check, not only of failures"},
    {OPTION_SWITCH, "record", AT(record),
     .help = "  at the end, the largest relative error over all"},
    {OPTION_SWITCH, "list", AT(list),
     .help = "  every op with the number of its cases and its formula"},
};

static const option_table table = {
    .program = "gradus-gradcheck",
    .usage =
        "Usage: gradus-gradcheck [OP...] [options]\n"
        "       gradus-gradcheck --load FILE [OP...] [options]\n\n"
        "Compares the backward of each op with finite differences of its forward, on the cases\n"
        "of its record, and checks the backward's behaviour.\n\n"
        "Exit status: 0 if every check passes (or is empty by design), none is vacuous, and\n"
        "something was compared; 1 if not; 2 for wrong usage, or if the checks could not be\n"
        "run or printed.\n",
    .operand = "op",
    .rows = rows,
};

GD_PRINTF(1, 2)
static void tell(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    terminal_vmessage(table.program, format, arguments);
    va_end(arguments);
}

static bool check_settings(settings *s, int words)
{
    static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_FLOAT16, GD_BFLOAT16};
    s->dtype = dtypes[s->dtype_name % 4];
    const options_fault faults[] = {
        {s->list && words > 1, "--list takes neither an OP nor another option"},
        {s->json && s->verbose,
         "--verbose has no effect with --json, whose lines have all details"},
        {s->order > 1 && gd_dtype_size(s->dtype) == 2, "--order 2 and 3 need --dtype f32 or f64"},
        {s->at >= 0 && (!s->ops || strchr(s->ops, '|') || !s->only_case || !s->only_input),
         "--at also needs one OP, --case and --input"},
        {0},
    };
    s->check = (gd_gradcheck_options){.dtype = &s->dtype,
                                      .seed = (uint64_t)s->seed,
                                      .order = (int)s->order,
                                      .step = s->step,
                                      .only_input = s->only_input,
                                      .only_element = s->at < 0 ? 0
                                                      : s->at   ? s->at
                                                                : GD_ZERO};
    return options_fit(&s->base, faults);
}

/* Copies the next name of "mul|add" and moves on; false at the end. */
static bool next_op(const char **names, char name[64])
{
    const size_t length = strcspn(*names, "|");
    if (!length) return false;
    snprintf(name, 64, "%.*s", (int)length, *names);
    *names += length + ((*names)[length] == '|');
    return true;
}

/* ---- Running ------------------------------------------------------------------------------ */

enum { VERDICTS = GD_VERDICT_UNSUPPORTED + 1, TRACKED_INPUTS = 32 };

/* The largest error, and where it was. */
typedef struct record {
    double error;
    char where[160];
} record;

typedef struct tally {
    int64_t of[VERDICTS]; /* lines by verdict */
    int64_t compared, ops;
    record all, smooth; /* the latter of those in the full precision of the dtype */
    struct {
        bool seen, alive; /* it was compared; it ever had a gradient other than 0 */
        char name[64];
    } input[TRACKED_INPUTS]; /* of the current op */
} tally;

static void note_record(record *best, const gd_gradcheck_report *r, const gd_gradcheck_input *in)
{
    if (!(in->largest_error > best->error)) return;
    best->error = in->largest_error;
    snprintf(best->where, sizeof best->where, "%s, case %.40s, seed %llu, %.20s", r->op, r->name,
             (unsigned long long)r->seed, in->name);
}

static void count_report(tally *t, const gd_gradcheck_report *r, const gd_case *check)
{
    double usual = r->dtype == GD_FLOAT64 ? 1e-6 : r->dtype == GD_FLOAT32 ? 1e-3 : 1;
    bool smooth = !check->kinks && r->rtol <= usual;
    if (!r->inputs) t->of[r->verdict]++;
    for (int k = 0; k < r->inputs; k++) {
        const gd_gradcheck_input *in = &r->input[k];
        t->of[in->verdict]++;
        t->compared += in->compared;
        note_record(&t->all, r, in);
        if (smooth) note_record(&t->smooth, r, in);
        if (in->index >= TRACKED_INPUTS) continue;
        t->input[in->index].seen |= in->compared > 0;
        t->input[in->index].alive |= in->largest_gradient > 0;
        memcpy(t->input[in->index].name, in->name, sizeof in->name);
    }
}

/* The number of the input of this name; -1: the case has none. */
static int find_input(const gd_op *op, const gd_case *check, const char *name)
{
    int i = name ? check->inputs - 1 : -1;
    while (i >= 0 && strcmp(gd_input_name(op, i).text, name)) i--;
    return i;
}

/* Returns false if the check could not be run. */
static bool run_case(gd_context *ctx, const settings *s, const gd_op *op, const gd_case *check,
                     tally *t)
{
    gd_gradcheck_options options = s->check;
    for (int64_t k = 0; k < s->seeds; k++, options.seed++) {
        gd_gradcheck_report report;
        if (gd_gradcheck_case(ctx, op, check, &options, &report)) {
            tell("%s, case %s: %s", op->name, check->name, gd_error(ctx));
            gd_error_clear(ctx);
            return false;
        }
        count_report(t, &report, check);
        bool trouble = report.verdict != GD_VERDICT_PASS && report.verdict != GD_VERDICT_EMPTY;
        if (s->json)
            gd_gradcheck_print_json(&report, stdout);
        else
            gd_gradcheck_print(&report, stdout, s->verbose);
        if (trouble && !s->json && !s->verbose) gd_gradcheck_print(&report, stdout, true);
        gd_gradcheck_report_free(&report);
    }
    return true;
}

/* A line about all cases of an op. */
static void print_vacuous(const settings *s, const gd_op *op, tally *t, const char *why)
{
    gd_gradcheck_report r = {.verdict = GD_VERDICT_VACUOUS,
                             .device = (gd_device)s->base.device,
                             .dtype = s->dtype,
                             .order = s->check.order,
                             .seed = s->check.seed};
    t->of[GD_VERDICT_VACUOUS]++;
    snprintf(r.op, sizeof r.op, "%s", op->name);
    snprintf(r.message, sizeof r.message, "%s", why);
    if (s->json)
        gd_gradcheck_print_json(&r, stdout);
    else
        gd_gradcheck_print(&r, stdout, false);
}

/* A check that compares zeros with zeros cannot detect a backward that does nothing. This is
 * allowed for single cases, but for all cases of an op only if its record says so. */
static void judge_op(const settings *s, const gd_op *op, tally *t)
{
    const bool judged =
        !op->zero_gradient && s->check.order <= 1 && !s->only_case && !s->check.only_input;
    for (int i = 0; i < TRACKED_INPUTS && judged; i++) {
        char why[128];
        if (!t->input[i].seen || t->input[i].alive) continue;
        snprintf(why, sizeof why, "the gradient of %s is zero in every case", t->input[i].name);
        print_vacuous(s, op, t, why);
    }
    memset(t->input, 0, sizeof t->input);
}

static void refuse_case(const settings *s, const gd_op *op)
{
    char names[4000] = "";
    for (int i = 0; i < op->case_count; i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s %s", i ? "," : "", op->cases[i].name);
    }
    tell("%s has no case %s; it has%s", op->name, s->only_case, names);
}

static bool run_op(gd_context *ctx, const settings *s, const gd_op *op, tally *t)
{
    int cases = 0;
    for (int i = 0; i < op->case_count; i++) {
        if (s->only_case && strcmp(s->only_case, op->cases[i].name)) continue;
        cases++;
        const int input = find_input(op, &op->cases[i], s->check.only_input);
        if (!s->only_case && input >= 0 && op->cases[i].input[input].absent) continue;
        if (!run_case(ctx, s, op, &op->cases[i], t)) return false;
    }
    if (!cases && s->only_case && !s->ops) return true; /* only the ops that have it */
    if (!cases && s->only_case) {
        refuse_case(s, op);
        return false;
    }
    t->ops++;
    if (!cases) print_vacuous(s, op, t, "the op has no cases");
    judge_op(s, op, t);
    return true;
}

static bool refuse_op(const gd_context *ctx, const char *name)
{
    guess g = guess_begin(name);
    const gd_op *op;
    for (int i = 0; (op = gd_op_at(ctx, i)); i++) guess_try(&g, op->name, op->name);
    if (g.name)
        tell("there is no op %s (see --list); did you mean %s?", name, g.name);
    else
        tell("there is no op %s (see --list)", name);
    return false;
}

/* Registers the ops of --load. */
static bool load_ops(gd_context *ctx, const settings *s)
{
    char why[512] = "";
    const gd_op *const *ops = s->load ? gd_os_load(s->load, "gradus_ops", why, sizeof why) : NULL;
    for (int i = 0; ops && ops[i] && !gd_register_op(ctx, ops[i]); i++) continue;
    const char *fault = why[0] ? why : gd_error(ctx);
    if (fault) tell("--load %s: %s", s->load, fault);
    return !fault;
}

static bool run_all(gd_context *ctx, const settings *s, tally *t)
{
    const gd_op *op;
    char name[64];
    int first = 0;
    while (s->load && gd_op_at(NULL, first)) first++; /* those of the library */
    for (int i = first; !s->ops && (op = gd_op_at(ctx, i)); i++)
        if (!run_op(ctx, s, op, t)) return false;
    for (const char *names = s->ops; names && next_op(&names, name);)
        if (!gd_find_op(ctx, name)) return refuse_op(ctx, name);
    for (const char *names = s->ops; names && next_op(&names, name);)
        if (!run_op(ctx, s, gd_find_op(ctx, name), t)) return false;
    if (t->ops) return true;
    if (s->only_case)
        tell("no op has a case %s", s->only_case);
    else
        tell("--load %s: its gradus_ops has no op", s->load);
    return false;
}

/* ---- The end ------------------------------------------------------------------------------ */

static int conclude(const settings *s, const tally *t)
{
    int64_t lines = 0, fine = t->of[GD_VERDICT_PASS] + t->of[GD_VERDICT_EMPTY];
    for (int v = 0; v < VERDICTS; v++) lines += t->of[v];
    bool success = fine == lines && t->of[GD_VERDICT_PASS] > 0;
    FILE *file = s->json ? stderr : stdout;
    if (s->record && t->of[GD_VERDICT_PASS]) {
        fprintf(file, "largest relative error %.2e: %s\n", t->all.error, t->all.where);
        fprintf(file, "largest of smooth cases %.2e: %s\n", t->smooth.error, t->smooth.where);
    }
    fprintf(file, "%lld ops, %lld checks, %lld elements compared:", (long long)t->ops,
            (long long)lines, (long long)t->compared);
    const char *comma = "";
    for (int v = 0; v < VERDICTS; v++) {
        if (!t->of[v]) continue;
        fprintf(file, "%s %lld %s", comma, (long long)t->of[v], gd_verdict_name((gd_verdict)v));
        comma = ",";
    }
    fputc('\n', file);
    return success ? 0 : 1;
}

static int list_ops(void)
{
    const gd_op *op;
    for (int i = 0; (op = gd_op_at(NULL, i)); i++)
        printf("%-14s %3d cases  %s\n", op->name, op->case_count, op->formula ? op->formula : "");
    return 0;
}

static int run_checks(settings *s)
{
    const gd_context_options machine = {
        .poison = true, .device = (gd_device)s->base.device, .threads = (int)s->base.threads};
    gd_context *ctx = gd_context_create(&machine);
    tally t = {0};
    int status = WRONG_CALL;
    const char *note = gd_context_device_note(ctx);
    if (note) tell("%s", note);
    if (gd_error(ctx))
        tell("%s", gd_error(ctx));
    else if (load_ops(ctx, s) && run_all(ctx, s, &t))
        status = conclude(s, &t);
    gd_context_free(ctx);
    return status;
}

int main(int argc, char **argv)
{
    settings s = {.at = -1};
    spin_briefly(argv);
    argv = gd_os_begin(argv);
    const options_outcome outcome = options_read(&s.base, &table, argv);
    int status = outcome == OPTIONS_DONE ? EXIT_SUCCESS : WRONG_CALL;
    if (outcome == OPTIONS_RUN && check_settings(&s, argc - 1))
        status = s.list ? list_ops() : run_checks(&s);
    options_free(&s.base);
    const bool flushed = !fflush(stdout);
    if (flushed && !ferror(stdout)) return status;
    tell("cannot write to stdout: %s", flushed ? "some output was lost" : strerror(errno));
    return WRONG_CALL;
}
