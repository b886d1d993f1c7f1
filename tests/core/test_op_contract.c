/* test_op_contract.c - what every op promises, for every record of the library: all dtypes and
 * layouts give the same numbers, and all numbers of threads the same bits; nothing goes in where
 * nothing is, and NaN comes out where it went in; and a tensor that does not fit is refused in the
 * words of refusals.txt.
 *
 * No op is named here: inputs are those of the records' cases, also with some of their sizes
 * changed all over. Cases that an op refuses are skipped, but not all cases of an op. */
#include "op_cases.h"

static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};

/* The records; GRADUS_TEST_OP in the environment names a single one. */
static const gd_op *next_op(int *i)
{
    const char *only = getenv("GRADUS_TEST_OP");
    const gd_op *op;
    while ((op = gd_op_at(NULL, (*i)++))) {
        ck_assert(op->constant && op->same_bits);
        if (!only || !strcmp(only, op->name)) return op;
    }
    return NULL;
}

static gd_context *context(int threads, bool poison)
{
    gd_context *ctx =
        watched_context((gd_context_options){.threads = threads, .poison = poison, .seed = 1});
    ck_assert_no_error(ctx);
    return ctx;
}

/* ---- Dtypes and layouts -------------------------------------------------------------------- */

/* float64, packed, is what all others are near. */
static void in_all_layouts(gd_context *ctx, const gd_op *op, const gd_case *c, gd_dtype dtype,
                           tally *t)
{
    static const layout ways[] = {PACKED, SLICED, TRANSPOSED};
    static const char *const names[] = {"packed", "sliced", "transposed"};
    problem p = {.op = op, .c = c, .seed = 11};
    outcome want, got;
    make_values(&p, ctx, dtype);
    const bool wide = dtype == GD_FLOAT32 || dtype == GD_FLOAT64;
    run_problem(&p, ctx, wide ? GD_FLOAT64 : dtype, PACKED, &want);
    ck_assert_msg(!want.refused[0], "%s", want.refused);
    for (int way = dtype == GD_FLOAT32 ? 0 : 1; way < 3; way++) {
        run_problem(&p, ctx, dtype, ways[way], &got);
        ck_assert_msg(!got.refused[0], "%s", got.refused);
        compare_outcomes(&p, dtype, names[way], &got, &want, t);
        free_outcome(&got);
    }
    free_outcome(&want);
    free_values(&p);
}

TEST_CASE("layouts", NULL, NULL)

LOOP_TEST(layouts, 4)
{
    gd_context *ctx = context(2, true);
    tally t = {0};
    const gd_op *op;
    for (int i = 0; (op = next_op(&i));)
        for (int k = 0; k < op->case_count; k++)
            in_all_layouts(ctx, op, &op->cases[k], dtypes[_i], &t);
    printf("%s: %d tensors compared, at most %.2f of the tolerance: %s\n",
           gd_dtype_name(dtypes[_i]), t.compared, t.worst, t.where);
    ck_assert_int_eq(t.wrong, 0);
    gd_context_free(ctx);
}

/* ---- Threads ------------------------------------------------------------------------------- */

enum { LARGE = 20000, LARGE_ENOUGH = 2 };

/* The case with `size` in place of each of its sizes `was`. */
static gd_case resized(const gd_case *c, int64_t was, int64_t size)
{
    gd_case other = *c;
    for (int i = 0; i < c->inputs; i++)
        for (int d = 0; d < c->input[i].ndim; d++)
            if (c->input[i].shape[d] == was) other.input[i].shape[d] = size;
    return other;
}

static int64_t largest_input(const gd_case *c)
{
    int64_t most = 0;
    for (int i = 0; i < c->inputs; i++) {
        const int64_t count = case_count(&c->input[i]);
        if (count > most) most = count;
    }
    return most;
}

/* The different sizes of a case, which are more than 0. */
static int sizes_of(const gd_case *c, int64_t *size)
{
    int count = 0;
    for (int i = 0; i < c->inputs; i++) {
        for (int d = 0; d < c->input[i].ndim; d++) {
            const int64_t n = c->input[i].shape[d];
            bool known = n == 0;
            for (int k = 0; k < count; k++) known |= size[k] == n;
            if (!known) size[count++] = n;
        }
    }
    return count;
}

static void assert_same_outcome(const problem *p, const outcome *a, const outcome *b,
                                const char *how)
{
    ck_assert_msg(!strcmp(a->refused, b->refused), "%s, %s: %s; %s", p->op->name, how, a->refused,
                  b->refused);
    ck_assert_int_eq(a->parts, b->parts);
    for (int k = 0; k < a->parts; k++) {
        const double *x = a->part[k].value, *y = b->part[k].value;
        for (int64_t i = 0; i < a->part[k].count; i++)
            if (!same_number(x[i], y[i])) /* an assertion for each would be slow */
                ck_abort_msg("%s, case %s, %s: %s[%lld] is %.17g and %.17g", p->op->name,
                             p->c->name, how, a->part[k].name, (long long)i, x[i], y[i]);
    }
}

/* Whether the op takes the case. */
static bool by_many_threads(gd_context *const *ctx, const gd_op *op, const gd_case *c,
                            gd_dtype dtype)
{
    problem p = {.op = op, .c = c, .seed = 3};
    outcome one, more;
    make_values(&p, ctx[0], dtype);
    run_problem(&p, ctx[0], dtype, PACKED, &one);
    const bool taken = !one.refused[0];
    for (int i = 1; i < 4 && taken; i++) {
        run_problem(&p, ctx[i], dtype, PACKED, &more);
        assert_same_outcome(&p, &one, &more, "on more threads");
        free_outcome(&more);
    }
    free_outcome(&one);
    free_values(&p);
    return taken;
}

/* Sizes that are large enough for more than one thread, in turn; how many the op took. */
static int on_large_cases(gd_context *const *ctx, const gd_op *op)
{
    int taken = 0;
    for (int k = 0; k < op->case_count && taken < LARGE_ENOUGH; k++) {
        int64_t size[GD_CASE_MAX_INPUTS * GD_MAX_DIMS];
        const int sizes = sizes_of(&op->cases[k], size);
        for (int s = 0; s < sizes && taken < LARGE_ENOUGH; s++) {
            int64_t factor = 2;
            gd_case c = op->cases[k];
            while (largest_input(&c) < LARGE && factor < 1 << 20)
                c = resized(&op->cases[k], size[s], size[s] * (factor = factor * 5 / 4 + 1) + 1);
            if (largest_input(&c) > 40 * LARGE) continue;
            if (by_many_threads(ctx, op, &c, dtypes[taken % 2])) {
                taken++;
                continue;
            }
            c = resized(&op->cases[k], size[s], size[s] * factor); /* a number of heads, perhaps */
            taken += by_many_threads(ctx, op, &c, dtypes[taken % 2]);
        }
    }
    return taken;
}

/* These are one case of too few sizes, or take the sizes as arguments. */
static const char *const never_large[] = {"expand"};

TEST_CASE("threads", NULL, NULL)

TEST(threads)
{
    static const int counts[] = {1, 2, 3, 7};
    gd_context *ctx[4];
    for (int i = 0; i < 4; i++) ctx[i] = context(counts[i], true);
    const gd_op *op;
    for (int i = 0; (op = next_op(&i));) {
        const bool never = !strcmp(op->name, never_large[0]);
        ck_assert_msg((on_large_cases(ctx, op) > 0) != never, "%s: large cases", op->name);
    }
    for (int i = 0; i < 4; i++) gd_context_free(ctx[i]);
}

/* ---- Nothing ------------------------------------------------------------------------------- */

/* With any size 0, an op leaves no element unwritten: fresh memory that is NaN and memory that
 * holds other numbers give the same. Or it refuses, as before. */
static int without(gd_context *poisoned, gd_context *used, const gd_op *op, const gd_case *c)
{
    int64_t size[GD_CASE_MAX_INPUTS * GD_MAX_DIMS];
    const int sizes = sizes_of(c, size);
    int taken = 0;
    for (int s = 0; s < sizes; s++) {
        gd_case none = resized(c, size[s], 0);
        problem p = {.op = op, .c = &none, .seed = 7};
        outcome one, other;
        make_values(&p, poisoned, GD_FLOAT32);
        run_problem(&p, poisoned, GD_FLOAT32, PACKED, &one);
        run_problem(&p, used, GD_FLOAT32, PACKED, &other);
        assert_same_outcome(&p, &one, &other, "without elements");
        taken += !one.refused[0];
        const size_t length = strlen(op->name);
        ck_assert_msg(!one.refused[0] || (!strncmp(one.refused, op->name, length) &&
                                          !strncmp(one.refused + length, ": ", 2)),
                      "%s: %s", op->name, one.refused);
        free_outcome(&one), free_outcome(&other);
        free_values(&p);
    }
    return taken;
}

TEST_CASE("edges", NULL, NULL)

TEST(nothing)
{
    gd_context *poisoned = context(1, true), *used = context(1, false);
    const gd_op *op;
    for (int i = 0; (op = next_op(&i));) {
        int taken = 0;
        for (int k = 0; k < op->case_count; k++) {
            problem p = {.op = op, .c = &op->cases[k], .seed = 7};
            outcome before; /* whose memory the next ones get */
            make_values(&p, used, GD_FLOAT32);
            run_problem(&p, used, GD_FLOAT32, PACKED, &before);
            free_outcome(&before);
            free_values(&p);
            taken += without(poisoned, used, op, &op->cases[k]);
        }
        /* expand takes its sizes as arguments */
        ck_assert_msg((taken > 0) == (strcmp(op->name, "expand") != 0), "%s: %d cases of size 0",
                      op->name, taken);
    }
    gd_context_free(poisoned), gd_context_free(used);
}

/* ---- NaN ------------------------------------------------------------------------------------ */

typedef enum which { OUTPUTS, GRADIENTS } which;

/* Each real element that `moved` has otherwise than `base` is NaN in `nan`. */
static bool nan_where_it_moves(const problem *p, const outcome *base, const outcome *moved,
                               const outcome *nan, which of, const char *what)
{
    const int outputs = gd_op_count(p->op).outputs;
    for (int k = of == OUTPUTS ? 0 : base->outputs; k < (of == OUTPUTS ? outputs : base->parts);
         k++) {
        const double *is = nan->part[k].value;
        for (int64_t i = 0; i < base->part[k].count && !base->part[k].whole; i++) {
            if (same_number(base->part[k].value[i], moved->part[k].value[i]) || isnan(is[i]))
                continue;
            printf("%s, case %s, NaN in %s: %s[%lld] is %g\n", p->op->name, p->c->name, what,
                   base->part[k].name, (long long)i, is[i]);
            return false;
        }
    }
    return true;
}

/* The outputs with x of an input in place of one element. */
static void with_value(problem *p, gd_context *ctx, int input, int64_t at, double x, outcome *out)
{
    const double was = p->input[input][at];
    p->input[input][at] = x;
    run_problem(p, ctx, GD_FLOAT32, PACKED, out);
    p->input[input][at] = was;
}

static bool nan_in_inputs(gd_context *ctx, problem *p, const outcome *base)
{
    bool good = true;
    for (int i = 0; i < p->c->inputs; i++) {
        const gd_case_input *in = &p->c->input[i];
        const int64_t count = case_count(in), at = count * 2 / 3;
        if (!count || in->fill == GD_FILL_INDEX) continue;
        outcome moved, nan;
        with_value(p, ctx, i, at, p->input[i][at] * 1.5 + 0.75, &moved);
        with_value(p, ctx, i, at, NAN, &nan);
        ck_assert(!moved.refused[0] && !nan.refused[0]);
        good &= nan_where_it_moves(p, base, &moved, &nan, OUTPUTS, gd_input_name(p->op, i).text);
        free_outcome(&moved), free_outcome(&nan);
    }
    return good;
}

static bool nan_in_cotangents(gd_context *ctx, problem *p, const outcome *base)
{
    bool good = true;
    for (int o = 0; o < gd_op_count(p->op).outputs && gd_op_has_backward(p->op, GD_CPU); o++) {
        const int64_t count = base->part[o].count;
        if (!count) continue;
        outcome moved, nan;
        p->put = (put_cotangent){true, o, count / 2, 3.25};
        run_problem(p, ctx, GD_FLOAT32, PACKED, &moved);
        p->put.value = NAN;
        run_problem(p, ctx, GD_FLOAT32, PACKED, &nan);
        p->put.wanted = false;
        good &= nan_where_it_moves(p, base, &moved, &nan, GRADIENTS, "dy");
        free_outcome(&moved), free_outcome(&nan);
    }
    return good;
}

TEST(nan_goes_on)
{
    gd_context *ctx = context(1, true);
    const gd_op *op;
    bool good = true;
    for (int i = 0; (op = next_op(&i));) {
        for (int k = 0; k < op->case_count; k++) {
            problem p = {.op = op, .c = &op->cases[k], .seed = 5};
            outcome base;
            make_values(&p, ctx, GD_FLOAT32);
            run_problem(&p, ctx, GD_FLOAT32, PACKED, &base);
            good &= nan_in_inputs(ctx, &p, &base);
            good &= nan_in_cotangents(ctx, &p, &base);
            free_outcome(&base);
            free_values(&p);
        }
    }
    ck_assert(good);
    gd_context_free(ctx);
}

/* ---- Refusals ------------------------------------------------------------------------------- */

/* From LONGER on: with axis `how - LONGER` longer. */
typedef enum wrong { ABSENT, STRANGE, WHOLE, OTHER_REAL, MORE_DIMS, FEWER_DIMS, LONGER } wrong;

static const char *const wrong_names[] = {"absent",  "of another context", "other kind",
                                          "float64", "more dimensions",    "fewer dimensions"};

/* Input `which` of the case with what is wrong; NULL if that does not apply. */
static gd_tensor *wrong_input(gd_context *ctx, const gd_case_input *in, wrong how)
{
    const bool index = in->fill == GD_FILL_INDEX;
    gd_dtype dtype = index ? GD_INT32 : GD_FLOAT32;
    shape s = {in->ndim, {0}};
    memcpy(s.dim, in->shape, sizeof s.dim);
    if (how == WHOLE) dtype = index ? GD_FLOAT32 : GD_INT32;
    if (how == OTHER_REAL) dtype = GD_FLOAT64;
    if (how == MORE_DIMS) s.dim[s.ndim++] = 2;
    if (how == FEWER_DIMS) s.ndim--;
    if (how >= LONGER) s.dim[how - LONGER] += 3;
    return gd_tensor_create(ctx, dtype, s.ndim, s.dim);
}

/* What there is to read of an op, or of several alike. */
typedef struct block {
    size_t used;
    char text[16384];
} block;

GD_PRINTF(2, 3) static void print(block *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    to->used += (size_t)vsnprintf(to->text + to->used, sizeof to->text - to->used, format, args);
    va_end(args);
    ck_assert_uint_lt(to->used, sizeof to->text);
}

/* Of the case, with input `which` so, if it is not -1: a row, unless its error is as expected, or
 * there is none and "" is. */
static void print_refusal(block *to, gd_context *ctx, gd_context *other, const gd_op *op,
                          const gd_case *c, const void *args, int which, wrong how,
                          const char *what, const char *expected)
{
    gd_tensor *input[GD_CASE_MAX_INPUTS] = {NULL}, *output[MOST_OUTPUTS];
    for (int j = 0; j < c->inputs; j++) {
        if (c->input[j].absent || (j == which && how == ABSENT)) continue;
        input[j] = wrong_input(j == which && how == STRANGE ? other : ctx, &c->input[j],
                               j == which ? how : ABSENT);
        if (input[j]) gd_tensor_fill(input[j], 0);
    }
    ck_assert_no_error(ctx);
    gd_apply_multi(op, input, c->inputs, args, output);
    const char *error = gd_error(ctx);
    const size_t length = strlen(op->name);
    ck_assert(!error || (!strncmp(error, op->name, length) && !strncmp(error + length, ": ", 2)));
    error = error ? error + length + 2 : "";
    if (strcmp(error, expected) != 0) print(to, "%s | %s\n", what, *error ? error : "taken");
    gd_error_clear(ctx), gd_error_clear(other);
    gd_step_end(ctx);
    for (int j = 0; j < c->inputs; j++) gd_tensor_free(input[j]);
}

/* An argument with a range: that, and just outside of it, below, above, and NaN, it is refused. */
static void print_range(block *to, gd_context *ctx, const gd_op *op, const gd_case *c,
                        const gd_option_range *r)
{
    static const char *const ends[] = {"too small", "too large", "NaN"};
    const bool real = r->kind == GD_NUMBER_DOUBLE, axis = r->kind == GD_NUMBER_AXIS;
    const double bound[] = {r->low, axis ? c->input[0].ndim - 1 : r->high};
    if (!axis) print(to, "%s from %.17g to %.17g, %s\n", r->name, r->low, r->high, r->wanted);
    for (int end = 0; end < (real ? 3 : 2); end++) {
        uint64_t args[64];
        char what[80], expected[300] = "", *at = (char *)args + r->offset;
        ck_assert(op->args_size <= sizeof args);
        if (end < 2 && isinf(bound[end])) continue;
        const double away = end ? INFINITY : -INFINITY, wrong = end == 2 ? NAN
                                                                : real
                                                                    ? nextafter(bound[end], away)
                                                                    : bound[end] + (end ? 1 : -1);
        memcpy(args, c->args, op->args_size);
        if (real)
            *(double *)at = wrong;
        else if (r->kind == GD_NUMBER_INT64)
            *(int64_t *)at = (int64_t)wrong;
        else
            *(int *)at = (int)wrong;
        if (!axis)
            snprintf(expected, sizeof expected, "%s is %.*g, wanted %s", r->name, real ? 6 : 19,
                     wrong, r->wanted);
        snprintf(what, sizeof what, "%s %s", r->name, ends[end]);
        print_refusal(to, ctx, ctx, op, c, args, -1, ABSENT, what, expected);
    }
}

/* How much there is of the inputs of a case that can be wrong. */
static int richness(const gd_case *c)
{
    int count = 0;
    for (int i = 0; i < c->inputs; i++) count += c->input[i].absent ? 0 : 1 + c->input[i].ndim;
    return count;
}

/* The inputs, of which those with "?" may be NULL; and each of the op's richest case wrong in each
 * way, with a row for each that is refused. That of another context is, unless it is the first,
 * whose context the call has, and one that may not be NULL. */
static void print_refusals(block *to, gd_context *ctx, gd_context *other, const gd_op *op)
{
    const gd_case *c = &op->cases[0];
    const uint32_t optional = gd_op_count(op).optional_inputs;
    int first = 0, given = 0;
    for (int k = 1; k < op->case_count; k++)
        if (richness(&op->cases[k]) > richness(c)) c = &op->cases[k];
    for (int i = c->inputs - 1; i >= 0; i--)
        if (!c->input[i].absent) first = i, given++;
    for (int i = 0; i < c->inputs; i++)
        print(to, "%s%s%s", i ? ", " : "(", gd_input_name(op, i).text,
              optional & GD_BIT(i) ? "?" : "");
    print(to, ")\n");
    for (int i = 0; i < c->inputs; i++) {
        const gd_case_input *in = &c->input[i];
        for (int how = ABSENT; how < LONGER + in->ndim && !in->absent; how++) {
            const gd_text name = gd_input_name(op, i);
            char what[240], expected[300] = "";
            if (how == OTHER_REAL && in->fill == GD_FILL_INDEX) continue;
            if (how == FEWER_DIMS && in->ndim == 0) continue;
            if (how < LONGER)
                snprintf(what, sizeof what, "%s %s", name.text, wrong_names[how]);
            else
                snprintf(what, sizeof what, "%s with longer axis %d", name.text, how - LONGER);
            if (how == ABSENT && given > 1 && !(optional & GD_BIT(i)))
                snprintf(expected, sizeof expected, "%s is NULL, wanted a tensor", name.text);
            if (how == STRANGE && i != first)
                snprintf(expected, sizeof expected,
                         "%s is a tensor of another context, wanted all inputs from one",
                         name.text);
            print_refusal(to, ctx, other, op, c, c->args, i, (wrong)how, what, expected);
        }
    }
    for (const gd_option_range *r = op->ranges; r && r->name; r++) print_range(to, ctx, op, c, r);
}

/* The words are those of the file; one that no longer is refused, or newly is, fails, too. An op
 * that is like the one before it has that one's rows. */
TEST(refusals)
{
    gd_context *ctx = context(1, true), *other = context(1, true);
    const char *write = getenv("GRADUS_TEST_REFUSALS"); /* a file to write instead */
    FILE *to = write ? fopen(write, "w") : tmpfile(), *want;
    const gd_op *op;
    static block now, before;
    ck_assert_ptr_nonnull(to);
    for (int i = 0; (op = gd_op_at(NULL, i)); i++, before = now) {
        now.used = 0;
        print_refusals(&now, ctx, other, op);
        fprintf(to, "%s%s", op->name, strcmp(now.text, before.text) ? now.text : ": the same\n");
    }
    want = fopen(GRADUS_TEST_DIR "/core/refusals.txt", "r");
    ck_assert_ptr_nonnull(want);
    rewind(to);
    char line[2][1024];
    for (int n = 1; !write; n++) {
        const char *read[] = {fgets(line[0], sizeof line[0], to),
                              fgets(line[1], sizeof line[1], want)};
        ck_assert_msg(!read[0] == !read[1] && (!read[0] || !strcmp(read[0], read[1])),
                      "refusals.txt:%d: it says\n%swanted\n%s", n, read[0] ? read[0] : "nothing\n",
                      read[1] ? read[1] : "nothing\n");
        if (!read[0]) break;
    }
    fclose(to), fclose(want);
    gd_context_free(ctx), gd_context_free(other);
}

CHECK_MAIN("op contract")
