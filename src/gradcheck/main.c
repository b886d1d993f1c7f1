/* main.c - gradus-gradcheck: checks the gradients of the library's ops. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradus/gradcheck.h"
#include "platform/process.h"
#include "programs/guess.h"
#include "programs/spin.h"
#include "programs/terminal.h"

static const char usage[] =
    "Usage: gradus-gradcheck [OP...] [options]\n"
    "\n"
    "Compares the backward of each op with finite differences of its forward, on the cases\n"
    "of its record, and checks the backward's behaviour. Without OP: every op.\n"
    "\n"
    "  --case CASE       this case only, of the ops that have it\n"
    "  --dtype f64|f32|f16|bf16\n"
    "                    type of the inputs (f64)\n"
    "  --device cpu|cuda where to run (cpu)\n"
    "  --seed S          seed of the inputs and cotangents (0)\n"
    "  --seeds N         check N seeds, starting at S (1)\n"
    "  --order 1|2|3     check the gradient of the gradient, and the gradient of that (1)\n"
    "  --input INPUT     check this input only, in the cases that have it\n"
    "  --at I,J,...      and this element of it only; needs OP, --case and --input\n"
    "  --step H          step relative to the scale of the input (1e-5; f32: 1e-2)\n"
    "  --threads N       CPU threads (1: the cases are small)\n"
    "  --json            one line of JSON for each op, case and seed; a line with an\n"
    "                    empty case is about all cases of the op\n"
    "  --verbose         details of every check, not only of failures\n"
    "  --record          at the end, the largest relative error over all\n"
    "  --list            every op with the number of its cases and its formula\n"
    "  --help  --version\n"
    "\n"
    "Exit status: 0 if every check passes (or is empty by design), none is vacuous, and\n"
    "something was compared; 1 if not; 2 for wrong usage, or if the checks could not be\n"
    "run or printed.\n";

/* ---- The command line --------------------------------------------------------------------- */

typedef struct settings {
    const char **ops;
    int op_count;
    const char *only_case, *at;
    gd_dtype dtype;
    gd_gradcheck_options check;
    gd_context_options context;
    int64_t seeds;
    bool json, verbose, record, list;
} settings;

enum { WRONG_CALL = 2 };

static bool parse_number(const char *text, int64_t low, int64_t *number)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *number = value;
    return *text && !*end && !errno && value >= low;
}

static bool parse_dtype(const char *text, gd_dtype *dtype)
{
    static const struct {
        const char *name;
        gd_dtype dtype;
    } known[] = {{"f64", GD_FLOAT64},     {"float64", GD_FLOAT64},  {"f32", GD_FLOAT32},
                 {"float32", GD_FLOAT32}, {"f16", GD_FLOAT16},      {"float16", GD_FLOAT16},
                 {"bf16", GD_BFLOAT16},   {"bfloat16", GD_BFLOAT16}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        *dtype = known[i].dtype;
        if (!strcmp(text, known[i].name)) return true;
    }
    return false;
}

static bool parse_device(const char *text, gd_device *device)
{
    *device = strcmp(text, "cuda") ? GD_CPU : GD_CUDA;
    return !strcmp(text, "cuda") || !strcmp(text, "cpu");
}

static bool parse_step(const char *text, double *step)
{
    char *end;
    *step = strtod(text, &end);
    return *text && !*end && *step > 0 && isfinite(*step);
}

/* An option without a value. */
static bool parse_switch(settings *s, const char *name)
{
    const struct {
        const char *name;
        bool *on;
    } switches[] = {{"--json", &s->json},
                    {"--verbose", &s->verbose},
                    {"--record", &s->record},
                    {"--list", &s->list}};
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        if (strcmp(name, switches[i].name)) continue;
        return *switches[i].on = true;
    }
    return false;
}

/* An option with a value. -2: a text that was given before, and there can be one; -1: no such option;
 * 0: an invalid value; 1: fine. */
static int parse_value(settings *s, const char *name, const char *value)
{
    int64_t n = 0;
    const struct {
        const char *name, **text;
    } texts[] = {{"--case", &s->only_case}, {"--input", &s->check.only_input}, {"--at", &s->at}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(name, texts[i].name)) continue;
        const bool again = *texts[i].text != NULL;
        *texts[i].text = value;
        return again ? -2 : 1;
    }
    if (!strcmp(name, "--step")) return parse_step(value, &s->check.step);
    if (!strcmp(name, "--dtype")) return parse_dtype(value, &s->dtype);
    if (!strcmp(name, "--device")) return parse_device(value, &s->context.device);
    if (!strcmp(name, "--seed")) {
        bool fine = parse_number(value, 0, &n);
        s->check.seed = (uint64_t)n;
        return fine;
    }
    if (!strcmp(name, "--order")) {
        bool fine = parse_number(value, 1, &n) && n <= 3;
        s->check.order = (int)n;
        return fine;
    }
    if (!strcmp(name, "--seeds")) return parse_number(value, 1, &s->seeds);
    if (!strcmp(name, "--threads")) {
        bool fine = parse_number(value, 1, &n) && n <= 4096;
        s->context.threads = (int)n;
        return fine;
    }
    return -1;
}

/* Every option, and what its value must be; NULL: it has none. */
static const char *const option_values[][2] = {{"--case", "a name"},
                                               {"--dtype", "f64, f32, f16 or bf16"},
                                               {"--device", "cpu or cuda"},
                                               {"--seed", "a whole number of at least 0"},
                                               {"--seeds", "a whole number of at least 1"},
                                               {"--order", "1, 2 or 3"},
                                               {"--input", "a name"},
                                               {"--at", "whole numbers"},
                                               {"--step", "a number above 0"},
                                               {"--threads", "a whole number from 1 to 4096"},
                                               {"--json", NULL},
                                               {"--verbose", NULL},
                                               {"--record", NULL},
                                               {"--list", NULL},
                                               {"--help", NULL},
                                               {"--version", NULL}};
enum { OPTIONS = sizeof option_values / sizeof *option_values };

static const char *wanted_value(const char *name)
{
    int i = 0;
    while (i < OPTIONS - 1 && strcmp(name, option_values[i][0])) i++;
    return option_values[i][1];
}

GD_PRINTF(1, 2)
static void tell(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    terminal_vmessage("gradus-gradcheck", format, arguments);
    va_end(arguments);
}

static void refuse_option(const char *option)
{
    guess g = guess_begin(option);
    for (int i = 0; i < OPTIONS; i++) guess_try(&g, option_values[i][0] + 2, option_values[i][0]);
    if (g.name)
        tell("unknown option %s (see --help); did you mean %s?", option, g.name);
    else
        tell("unknown option %s (see --help)", option);
}

/* An option with a value, which follows a '=' or is `next` (NULL: there is none). Returns how many
 * of the two arguments were used, 0 after an error message. */
static int parse_option(settings *s, const char *option, const char *next)
{
    char name[32];
    const size_t length = strcspn(option, "=");
    const bool inside = option[length] == '=';
    snprintf(name, sizeof name, "%.*s", (int)length, option);
    const char *value = inside ? option + length + 1 : next;
    const int parsed = parse_value(s, name, value ? value : "");
    if (parsed > 0 && value) return inside ? 1 : 2;
    if (parsed == -2)
        tell("%s is given twice, wanted once", name);
    else if (parsed < 0 && inside && parse_switch(s, name))
        tell("%s takes no value (see --help)", name);
    else if (parsed < 0)
        refuse_option(option);
    else if (!value)
        tell("%s needs a value (see --help)", name);
    else
        tell("%s is \"%s\", wanted %s", name, value, wanted_value(name));
    return 0;
}

/* Returns -1 to continue, else the exit status. */
static int parse(settings *s, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (!strcmp(name, "--help") || !strcmp(name, "-h")) return fputs(usage, stdout), 0;
        if (!strcmp(name, "--version")) return printf("gradus-gradcheck %s\n", gd_version()), 0;
        if (name[0] != '-') {
            s->ops[s->op_count++] = name;
            continue;
        }
        if (parse_switch(s, name)) continue;
        const int used = parse_option(s, name, argv[i + 1]);
        if (!used) return WRONG_CALL;
        i += used - 1;
    }
    if (s->list && argc > 2) {
        tell("--list takes neither an OP nor another option");
        return WRONG_CALL;
    }
    if (s->json && s->verbose) {
        tell("--verbose has no effect with --json, whose lines have all details");
        return WRONG_CALL;
    }
    if (s->check.order > 1 && gd_dtype_size(s->dtype) == 2) {
        tell("--order %d needs --dtype f32 or f64", s->check.order);
        return WRONG_CALL;
    }
    if (s->at && (s->op_count != 1 || !s->only_case || !s->check.only_input)) {
        tell("--at also needs one OP, --case and --input");
        return WRONG_CALL;
    }
    return -1;
}

/* "2,17" as a flat index into the input of the case; -1 if it is not valid. */
static int64_t flat_index(const char *at, const gd_case_input *input)
{
    int64_t flat = 0;
    if (input->ndim == 0) return strcmp(at, "0") ? -1 : 0;
    for (int axis = 0; axis < input->ndim; axis++) {
        char *end;
        long long i = strtoll(at, &end, 10);
        if (end == at || i < 0 || i >= input->shape[axis]) return -1;
        if (*end != (axis + 1 < input->ndim ? ',' : 0)) return -1;
        flat = flat * input->shape[axis] + i;
        at = end + 1;
    }
    return flat;
}

/* ---- Running ------------------------------------------------------------------------------ */

enum { VERDICTS = GD_VERDICT_UNSUPPORTED + 1, TRACKED_INPUTS = 32 };

typedef struct tally {
    int64_t of[VERDICTS]; /* lines by verdict */
    int64_t compared, ops;
    double largest, largest_smooth; /* of those in the full precision of the dtype */
    char where[160], where_smooth[160];
    /* of the current op: inputs that were compared, and that ever had a gradient other than 0 */
    bool seen[TRACKED_INPUTS], alive[TRACKED_INPUTS];
    char name[TRACKED_INPUTS][64];
} tally;

static void note_record(tally *t, const gd_gradcheck_report *r, const gd_gradcheck_input *in,
                        bool smooth)
{
    if (in->largest_error > t->largest) {
        t->largest = in->largest_error;
        snprintf(t->where, sizeof t->where, "%s, case %.40s, seed %llu, %.20s", r->op, r->name,
                 (unsigned long long)r->seed, in->name);
    }
    if (smooth && in->largest_error > t->largest_smooth) {
        t->largest_smooth = in->largest_error;
        snprintf(t->where_smooth, sizeof t->where_smooth, "%s, case %.40s, seed %llu, %.20s", r->op,
                 r->name, (unsigned long long)r->seed, in->name);
    }
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
        note_record(t, r, in, smooth);
        if (in->index >= TRACKED_INPUTS) continue;
        t->seen[in->index] = t->seen[in->index] || in->compared > 0;
        t->alive[in->index] = t->alive[in->index] || in->largest_gradient > 0;
        memcpy(t->name[in->index], in->name, sizeof in->name);
    }
}

static bool refuse_place(const settings *s, const gd_op *op, const gd_case *check, int i)
{
    const gd_case_input *input = &check->input[i];
    char shape[400] = "";
    for (int d = 0, used = 0; d < input->ndim; d++)
        used += snprintf(shape + used, sizeof shape - (size_t)used, "%s%lld", d ? ", " : "",
                         (long long)input->shape[d]);
    tell("%s, case %s: --at %s is not an element of %s [%s]", op->name, check->name, s->at,
         gd_input_name(op, i).text, shape);
    return false;
}

/* Returns false if the check could not be run. */
static bool run_case(gd_context *ctx, const settings *s, const gd_op *op, const gd_case *check,
                     tally *t)
{
    gd_gradcheck_options options = s->check;
    bool found = !s->at || options.order < 2;
    for (int i = 0; s->at && i < check->inputs; i++) {
        const gd_case_input *input = &check->input[i];
        if (strcmp(gd_input_name(op, i).text, options.only_input)) continue;
        const int64_t element = flat_index(s->at, input);
        if (element < 0) return refuse_place(s, op, check, i);
        options.only_element = element ? element : GD_ZERO;
        found = true;
    }
    if (!found) {
        tell("%s, case %s: --at needs an input of the op, not %s", op->name, check->name,
             options.only_input);
        return false;
    }
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

/* A line about all cases of an op, for one of its inputs or, if that is NULL, for the op. */
static void print_vacuous(const settings *s, const gd_op *op, const char *input, const char *why)
{
    if (!s->json) {
        printf("%-14s %-24s %-10s %-16s VACUOUS  %s\n", op->name, "-", input ? input : "-", "",
               why);
        return;
    }
    gd_gradcheck_input in = {.verdict = GD_VERDICT_VACUOUS, .worst = -1};
    gd_gradcheck_report r = {.verdict = GD_VERDICT_VACUOUS,
                             .device = s->context.device,
                             .dtype = s->dtype,
                             .order = s->check.order,
                             .seed = s->check.seed,
                             .inputs = input != NULL,
                             .input = &in};
    snprintf(in.name, sizeof in.name, "%s", input ? input : "");
    snprintf(r.op, sizeof r.op, "%s", op->name);
    snprintf(r.message, sizeof r.message, "%s", why);
    gd_gradcheck_print_json(&r, stdout);
}

/* A check that compares zeros with zeros cannot detect a backward that does nothing. This is
 * allowed for single cases, but for all cases of an op only if its record says so. */
static void judge_op(const settings *s, const gd_op *op, tally *t)
{
    for (int i = 0; i < TRACKED_INPUTS; i++) {
        if (op->zero_gradient || s->check.order > 1 || !t->seen[i] || t->alive[i] || s->only_case ||
            s->check.only_input)
            continue;
        t->of[GD_VERDICT_VACUOUS]++;
        print_vacuous(s, op, t->name[i], "its gradient is zero in every case");
    }
    memset(t->seen, 0, sizeof t->seen);
    memset(t->alive, 0, sizeof t->alive);
}

/* Whether the case lacks the one input that is to be checked. */
static bool does_without(const gd_op *op, const gd_case *check, const char *name)
{
    for (int i = 0; name && i < check->inputs; i++) {
        if (!strcmp(gd_input_name(op, i).text, name)) return check->input[i].absent;
    }
    return false;
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
        if (!s->only_case && does_without(op, &op->cases[i], s->check.only_input)) continue;
        if (!run_case(ctx, s, op, &op->cases[i], t)) return false;
    }
    if (!cases && s->only_case && !s->op_count) return true; /* only the ops that have it */
    if (!cases && s->only_case) {
        refuse_case(s, op);
        return false;
    }
    t->ops++;
    if (!cases) {
        t->of[GD_VERDICT_VACUOUS]++;
        print_vacuous(s, op, NULL, "the op has no cases");
    }
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

static bool run_all(gd_context *ctx, const settings *s, tally *t)
{
    const gd_op *op;
    for (int i = 0; !s->op_count && (op = gd_op_at(ctx, i)); i++)
        if (!run_op(ctx, s, op, t)) return false;
    for (int i = 0; i < s->op_count; i++) {
        if (!gd_find_op(ctx, s->ops[i])) return refuse_op(ctx, s->ops[i]);
    }
    for (int i = 0; i < s->op_count; i++)
        if (!run_op(ctx, s, gd_find_op(ctx, s->ops[i]), t)) return false;
    if (t->ops) return true;
    tell("no op has a case %s", s->only_case);
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
        fprintf(file, "largest relative error %.2e: %s\n", t->largest, t->where);
        fprintf(file, "largest of smooth cases %.2e: %s\n", t->largest_smooth, t->where_smooth);
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
    gd_context *ctx = gd_context_create(&s->context);
    tally t = {0};
    int status = WRONG_CALL;
    const char *note = gd_context_device_note(ctx);
    if (note) tell("%s", note);
    if (gd_error(ctx))
        tell("%s", gd_error(ctx));
    else if (run_all(ctx, s, &t))
        status = conclude(s, &t);
    gd_context_free(ctx);
    return status;
}

int main(int argc, char **argv)
{
    settings s = {.dtype = GD_FLOAT64,
                  .check = {.dtype = &s.dtype},
                  .context = {.poison = true, .threads = 1},
                  .seeds = 1};
    spin_briefly(argv);
    argv = gd_os_begin(argv);
    s.ops = calloc((size_t)argc + 1, sizeof *s.ops);
    if (!s.ops) return WRONG_CALL;
    int status = parse(&s, argc, argv);
    if (status < 0) status = s.list ? list_ops() : run_checks(&s);
    free(s.ops);
    const bool flushed = !fflush(stdout);
    if (flushed && !ferror(stdout)) return status;
    tell("cannot write to stdout: %s", flushed ? "some output was lost" : strerror(errno));
    return WRONG_CALL;
}
