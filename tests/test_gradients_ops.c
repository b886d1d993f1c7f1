/* test_gradients_ops.c - every op's derivative and definition (gd_op in autograd.h), for every case of
 * its record, in float64:
 *
 *   - gradients by ops equal those of the kernels; so do those by the definition alone, where the
 *     record has both, and the outputs of the definition;
 *   - the gradient of the gradient, by each input and each cotangent, equals its finite differences;
 *   - for small cases so does the gradient of that, the third order.
 *
 * In float32 and 16 bits, gradients by ops equal those of the kernels, but for rounding.
 *
 * GRADUS_TEST_OPS=softmax,max   checks these alone. */
#include "op_test.h"

enum { MOST_INPUTS = GD_CASE_MAX_INPUTS, MOST_OUTPUTS = 4 };

static gd_context *ctx;
static gd_dtype dtype_of_inputs = GD_FLOAT64;
static double tolerance = 1e-11;

/* ---- One case ----------------------------------------------------------------------------- */

typedef struct problem {
    gd_op op; /* a copy of the record, whose derivative may be left out */
    const gd_case *c;
    int count; /* of inputs */
    gd_tensor *input[MOST_INPUTS], *cotangent[MOST_OUTPUTS], *second[MOST_INPUTS + MOST_OUTPUTS];
    gd_tensor *wanted[MOST_INPUTS + MOST_OUTPUTS]; /* inputs with a gradient, then cotangents */
    int inputs, all;                               /* how many of these are inputs; of all */
    gd_random_state random;
} problem;

static void fill(gd_tensor *t, const gd_case_input *how, uint64_t *seed)
{
    const int64_t n = gd_tensor_count(t);
    const double width = how->b == 0 ? 1 : how->b;
    double *x = zeros(n);
    for (int64_t i = 0; i < n; i++) {
        const double normal = sqrt(-2 * log(random_in(seed, 1e-9, 1))) *
                              cos(6.283185307179586 * random_in(seed, 0, 1));
        switch (how->fill) {
        case GD_FILL_NORMAL:
            x[i] = how->a + width * normal;
            break;
        case GD_FILL_DISTINCT: /* in a shuffled order, below */
            x[i] = how->a + width * ((double)i + random_in(seed, 0.2, 0.8)) * 3 / (double)n;
            break;
        case GD_FILL_UNIFORM:
            x[i] = random_in(seed, how->a, how->b);
            break;
        case GD_FILL_CONSTANT:
            x[i] = how->a;
            break;
        case GD_FILL_INDEX:
            x[i] = floor(random_in(seed, how->a, how->b));
            break;
        }
    }
    for (int64_t i = n - 1; i > 0 && how->fill == GD_FILL_DISTINCT; i--) {
        const int64_t j = random_below(seed, i + 1);
        const double other = x[j];
        x[j] = x[i];
        x[i] = other;
    }
    ck_assert_int_eq(gd_tensor_write_f64(t, x, n), GD_OK);
    free(x);
}

/* In float64 a cotangent is, too, even of a float32. */
static gd_tensor *normal_like(const gd_tensor *t, uint64_t *seed)
{
    static const gd_case_input normal = {.fill = GD_FILL_NORMAL};
    const gd_dtype dtype = dtype_of_inputs == GD_FLOAT64 ? GD_FLOAT64 : gd_tensor_dtype(t);
    gd_tensor *u = gd_tensor_create(ctx, dtype, gd_tensor_ndim(t), gd_tensor_shape(t));
    if (dtype != GD_INT32) fill(u, &normal, seed);
    return u;
}

static void forward(problem *p, gd_tensor **output)
{
    gd_random_set(ctx, p->random);
    gd_apply_multi(&p->op, p->input, p->count, p->c->args, output);
}

static void make(problem *p, const gd_op *op, const gd_case *c, uint64_t seed)
{
    *p = (problem){.op = *op, .c = c, .count = c->inputs, .random = {seed, 64}};
    for (int i = 0; i < c->inputs; i++) {
        const gd_case_input *how = &c->input[i];
        if (how->absent) continue;
        const gd_dtype dtype = how->fill == GD_FILL_INDEX ? GD_INT32 : dtype_of_inputs;
        gd_tensor *t = gd_tensor_create(ctx, dtype, how->ndim, how->shape);
        fill(t, how, &seed);
        p->input[i] = t;
        if (how->fixed || dtype == GD_INT32) continue;
        gd_tensor_set_requires_grad(t, true);
        p->second[p->all] = normal_like(t, &seed);
        p->wanted[p->all++] = t;
    }
    p->inputs = p->all;
    gd_tensor *output[MOST_OUTPUTS] = {NULL};
    ck_assert_int_le(op->outputs, MOST_OUTPUTS);
    forward(p, output);
    ck_assert_no_error(ctx);
    for (int i = 0; i < op->outputs; i++) {
        p->cotangent[i] = normal_like(output[i], &seed);
        if (!gd_tensor_requires_grad(output[i])) continue;
        p->wanted[p->all++] = p->cotangent[i];
    }
    gd_step_end(ctx);
}

static void drop(problem *p)
{
    gd_step_end(ctx);
    for (int i = 0; i < MOST_INPUTS; i++) {
        gd_tensor_free(p->input[i]);
        gd_tensor_free(p->second[i]);
    }
    for (int i = 0; i < MOST_OUTPUTS; i++) gd_tensor_free(p->cotangent[i]);
}

/* The outputs with a gradient, and their cotangents. */
static int real_outputs(const problem *p, gd_tensor **output, gd_tensor **cotangent)
{
    int count = 0;
    for (int i = 0; i < p->op.outputs; i++) {
        if (!gd_tensor_requires_grad(output[i])) continue;
        cotangent[count] = p->cotangent[i];
        output[count++] = output[i];
    }
    return count;
}

static gd_status gradients(problem *p, bool differentiable, gd_tensor **g)
{
    gd_tensor *output[MOST_OUTPUTS], *cotangent[MOST_OUTPUTS];
    forward(p, output);
    const int count = gd_error(ctx) ? 0 : real_outputs(p, output, cotangent);
    const gd_gradients_options options = {
        .cotangents = cotangent, .differentiable = differentiable, .zeros = true};
    return gd_gradients(output, count, &options, p->wanted, p->inputs, g);
}

/* ---- First order -------------------------------------------------------------------------- */

static bool close_to(const char *what, const problem *p, int i, const gd_tensor *got,
                     const gd_tensor *right)
{
    const int64_t n = gd_tensor_count(right);
    double *x = values_of(got), *y = values_of(right), largest = 0, error = 0;
    for (int64_t k = 0; k < n; k++) {
        if (isfinite(y[k])) largest = fmax(largest, fabs(y[k]));
        if (!isfinite(y[k]) && tolerance > 1e-9) continue; /* an input beyond the dtype */
        const bool same = x[k] == y[k] || (isnan(x[k]) && isnan(y[k]));
        if (!same)
            error = fabs(x[k] - y[k]) > error ? fabs(x[k] - y[k])
                    : isnan(x[k] - y[k])      ? INFINITY
                                              : error;
    }
    free(x);
    free(y);
    const bool fine = error <= tolerance * largest + 1e-300;
    if (!fine)
        printf("%s %s: %s %d is off by %g of %g\n", p->op.name, p->c->name, what, i, error,
               largest);
    return fine;
}

static bool check_first(problem *p, const char *what)
{
    gd_tensor *right[MOST_INPUTS], *got[MOST_INPUTS];
    bool fine = true;
    if (gradients(p, false, right) == GD_OK && gradients(p, true, got) == GD_OK)
        for (int i = 0; i < p->inputs; i++) fine &= close_to(what, p, i, got[i], right[i]);
    if (gd_error(ctx)) printf("%s %s: %s: %s\n", p->op.name, p->c->name, what, gd_error(ctx));
    fine = fine && !gd_error(ctx);
    gd_error_clear(ctx);
    gd_step_end(ctx);
    return fine;
}

static bool check_definition(problem *p)
{
    gd_tensor *right[MOST_OUTPUTS], *made[MOST_OUTPUTS];
    forward(p, right);
    memcpy(made, right, sizeof made);
    const gd_call call = {.context = ctx,
                          .op = &p->op,
                          .args = p->c->args,
                          .dtype = GD_FLOAT64,
                          .kernel_dtype = GD_FLOAT64,
                          .inputs = p->count,
                          .outputs = p->op.outputs,
                          .input = p->input,
                          .output = made,
                          .repeated = true,
                          .seed = p->random.seed,
                          .random_offset = p->random.offset};
    gd_random_set(ctx, p->random);
    gd_repeat_begin(ctx);
    p->op.definition(&call);
    gd_repeat_end(ctx);
    bool fine = !gd_error(ctx);
    if (!fine) printf("%s %s: definition: %s\n", p->op.name, p->c->name, gd_error(ctx));
    for (int i = 0; i < p->op.outputs && fine; i++)
        fine &=
            made[i] != right[i] && close_to("output of the definition", p, i, made[i], right[i]);
    gd_error_clear(ctx);
    gd_step_end(ctx);
    return fine;
}

/* ---- Higher orders ------------------------------------------------------------------------ */

/* All of a set of tensors in one row. */
static gd_tensor *joined(gd_tensor *const *t, int count)
{
    gd_tensor *row[MOST_INPUTS + MOST_OUTPUTS];
    for (int i = 0; i < count; i++) row[i] = gd_reshape(t[i], GD_SHAPE(-1));
    return gd_concat(row, count, 0);
}

/* The gradients by ops as a function of the inputs and the cotangents; of third order, the gradient of
 * their product with `second`. Finite differences call it where nothing is recorded
 * and nothing requires a gradient. */
static gd_tensor *gradient_function(void *user, int order)
{
    problem *p = user;
    gd_tensor *g[MOST_INPUTS + MOST_OUTPUTS];
    bool required[MOST_INPUTS + MOST_OUTPUTS];
    int hidden = 0, n = p->inputs;
    for (int i = 0; i < p->all; i++) {
        required[i] = gd_tensor_requires_grad(p->wanted[i]);
        if (i < n || order == 3) gd_tensor_set_requires_grad(p->wanted[i], true);
    }
    for (; !gd_grad_enabled(ctx); hidden++) gd_no_grad_end(ctx);
    if (gradients(p, true, g)) n = 0;
    if (order == 3 && n) {
        const gd_gradients_options options = {
            .cotangents = p->second, .differentiable = true, .zeros = true};
        gd_tensor *h[MOST_INPUTS + MOST_OUTPUTS];
        if (gd_gradients(g, n, &options, p->wanted, p->all, h)) n = 0;
        if (n) n = p->all;
        memcpy(g, h, sizeof g);
    }
    gd_tensor *y = n ? joined(g, n) : NULL;
    for (; hidden > 0; hidden--) gd_no_grad_begin(ctx);
    for (int i = 0; i < p->all; i++) gd_tensor_set_requires_grad(p->wanted[i], required[i]);
    return y;
}

static gd_tensor *second_order(void *user, gd_tensor *const *inputs, int count)
{
    (void)inputs, (void)count;
    return gradient_function(user, 2);
}

static gd_tensor *third_order(void *user, gd_tensor *const *inputs, int count)
{
    (void)inputs, (void)count;
    return gradient_function(user, 3);
}

static bool check_order(problem *p, int order)
{
    const gd_gradcheck_options options = {.max_elements = order == 2 ? 24 : 8,
                                          .directions = 1,
                                          .cotangents = 1,
                                          .only_numbers = true};
    gd_gradcheck_report report;
    char name[128];
    snprintf(name, sizeof name, "%s %s, order %d", p->op.name, p->c->name, order);
    for (int i = p->inputs; i < p->all; i++) gd_tensor_set_requires_grad(p->wanted[i], true);
    gd_tensor *y = gradient_function(p, order);
    const bool constant = y && !gd_tensor_requires_grad(y); /* of a function like floor */
    gd_step_end(ctx);
    bool fine = true;
    if (!constant && gd_gradcheck_function(ctx, name, order == 2 ? second_order : third_order, p,
                                           p->wanted, p->all, &options, &report) == GD_OK) {
        const gd_verdict v = report.verdict;
        fine = v != GD_VERDICT_FAIL && v != GD_VERDICT_UNSUPPORTED &&
               (v != GD_VERDICT_INCONCLUSIVE || p->c->kinks);
        if (!fine) gd_gradcheck_print(&report, stdout, true);
        gd_gradcheck_report_free(&report);
    }
    if (gd_error(ctx)) printf("%s: %s\n", name, gd_error(ctx));
    fine = fine && !gd_error(ctx);
    gd_error_clear(ctx);
    gd_step_end(ctx);
    for (int i = p->inputs; i < p->all; i++) gd_tensor_set_requires_grad(p->wanted[i], false);
    return fine;
}

/* ---- All ---------------------------------------------------------------------------------- */

static bool chosen(const char *name)
{
    const char *list = getenv("GRADUS_TEST_OPS");
    const size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, length) && (at[length] == ',' || !at[length])) return true;
    return !list;
}

static bool check_case(const gd_op *op, const gd_case *c, uint64_t seed)
{
    problem p;
    bool fine = true;
    make(&p, op, c, seed);
    if (p.inputs > 0 && p.all > p.inputs) {
        int64_t elements = 0;
        for (int i = 0; i < p.all; i++) elements += gd_tensor_count(p.wanted[i]);
        fine &= check_first(&p, "gradient");
        if (op->definition) fine &= check_definition(&p);
        fine &= check_order(&p, 2);
        if (elements <= 64) fine &= check_order(&p, 3);
        if (op->definition && op->derivative) {
            p.op.derivative = NULL;
            fine &= check_first(&p, "gradient of the definition");
            if (elements <= 64) fine &= check_order(&p, 2);
        }
    }
    drop(&p);
    return fine;
}

START_TEST(every_op)
{
    const gd_op *op;
    int checked = 0, wrong = 0, missing = 0;
    ctx = test_context(1);
    for (int i = 0; (op = gd_op_at(ctx, i)); i++) {
        if (!op->backward[GD_CPU] || !chosen(op->name)) continue;
        if (!op->derivative && !op->definition) {
            printf("%s has neither a definition nor a derivative\n", op->name);
            missing++;
            continue;
        }
        for (int k = 0; k < op->case_count; k++, checked++)
            wrong += !check_case(op, &op->cases[k], 7 + (uint64_t)k);
        fflush(stdout);
    }
    printf("%d cases, %d wrong; %d ops have neither\n", checked, wrong, missing);
    ck_assert_int_gt(checked, 0);
    ck_assert_int_eq(wrong, 0);
    ck_assert_int_eq(missing, 0);
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}
END_TEST

/* The first order in another dtype, whose rounding, of inputs and outputs, is the tolerance. */
static int check_dtype(gd_dtype dtype, double rounding)
{
    const gd_op *op;
    int wrong = 0, checked = 0;
    ctx = test_context(1);
    dtype_of_inputs = dtype;
    tolerance = rounding;
    for (int i = 0; (op = gd_op_at(ctx, i)); i++) {
        for (int k = 0; k < op->case_count && op->backward[GD_CPU] && chosen(op->name); k++) {
            problem p;
            make(&p, op, &op->cases[k], 7 + (uint64_t)k);
            if (p.inputs > 0 && p.all > p.inputs) wrong += !check_first(&p, gd_dtype_name(dtype));
            drop(&p);
            checked++;
        }
    }
    printf("%s: %d cases, %d wrong\n", gd_dtype_name(dtype), checked, wrong);
    fflush(stdout);
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
    return wrong;
}

START_TEST(every_dtype)
{
    int wrong = check_dtype(GD_FLOAT32, 1e-5);
    wrong += check_dtype(GD_FLOAT16, 0x1p-8);
    wrong += check_dtype(GD_BFLOAT16, 0x1p-5);
    ck_assert_int_eq(wrong, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gradients_ops");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 600);
    tcase_add_test(all, every_op);
    tcase_add_test(all, every_dtype);
    suite_add_tcase(suite, all);
    return check_main(suite);
}
