/* test_gradcheck_claims.c - thousands of random faults in backwards of all small cases of all ops:
 * what gradcheck says of each must be true.
 *
 * A faulty backward multiplies dy by a matrix: the true Jacobian, measured here from the forward,
 * with rows or columns overwritten, left out, moved, scaled or added, once or twice; or it is not
 * linear. claims.c compares the words with both matrices. */
#include "check_main.h"
#include "claims.h"
#include "op_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 40, SEEDS = 8 };

/* What a faulty backward knows. */
typedef struct faulty_op {
    gd_op op; /* first, so that call->op leads here */
    const gd_op *real;
    const gd_case *which;
    gd_context *side; /* in which the true Jacobian is measured */
    uint64_t seed, kind, second;
    int input; /* whose gradient is wrong */
    bool ready;
    int64_t rows, columns;
    double *ours, *right[CLAIMS_INPUTS];
    gd_tensor *x[CLAIMS_INPUTS];
    double *y;
} faulty_op;

static double *fresh(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(double));
}

/* ---- The true Jacobian -------------------------------------------------------------------- */

static void outputs(faulty_op *f, double *y)
{
    gd_no_grad_begin(f->side);
    const gd_tensor *out = gd_apply(f->real, f->x, f->which->inputs, f->which->args);
    ck_assert_no_error(f->side);
    gd_tensor_read_f64(out, y, f->columns);
    gd_no_grad_end(f->side);
    gd_step_end(f->side);
}

static double size_of(const double *value, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += value[i] * value[i] / (double)n;
    return sum > 0 ? sqrt(sum) : 1;
}

/* [count][columns], by differences of fourth order. */
static double *differences(faulty_op *f, gd_tensor *x)
{
    const int64_t n = gd_tensor_count(x), m = f->columns;
    double *value = fresh(n), *y[4], *j = fresh(n * m);
    gd_tensor_read_f64(x, value, n);
    double mean = 0, apart = 0;
    for (int64_t i = 0; i < n; i++) mean += value[i] / (double)n;
    for (int64_t i = 0; i < n; i++) apart += (value[i] - mean) * (value[i] - mean) / (double)n;
    const double h = 1e-3 * (n > 2 && apart > 0 ? sqrt(apart) : size_of(value, n));
    for (int i = 0; i < 4; i++) y[i] = fresh(m);
    for (int64_t r = 0; r < n; r++) {
        static const double steps[] = {-2, -1, 1, 2};
        const double kept = value[r];
        for (int i = 0; i < 4; i++) {
            value[r] = kept + steps[i] * h;
            gd_tensor_write_f64(x, value, n);
            outputs(f, y[i]);
        }
        value[r] = kept;
        for (int64_t k = 0; k < m; k++)
            j[r * m + k] = (8 * (y[2][k] - y[1][k]) - (y[3][k] - y[0][k])) / (12 * h);
    }
    gd_tensor_write_f64(x, value, n);
    for (int i = 0; i < 4; i++) free(y[i]);
    free(value);
    return j;
}

/* ---- Faults ------------------------------------------------------------------------------- */

enum {
    SCALE_ALL,
    SCALE_ROW,
    SCALE_COLUMN,
    SCALE_ENTRY,
    SCALE_SOME,
    SCALE_ROWS,
    SCALE_COLUMNS,
    SCALE_OTHERS,
    DROP_ROW,
    DROP_COLUMN,
    DROP_BOX,
    DROP_ENTRIES,
    COPY_ROW,
    SWAP_ROWS,
    ROTATE_ROWS,
    REVERSE_ROWS,
    ROTATE_COLUMNS,
    SWAP_COLUMNS,
    TRANSPOSE,
    KEEP_LAST,
    KEEP_LAST_ONCE,
    OWN_ALONE,
    OWN_PARTLY,
    ADD_ENTRY,
    ADD_ENTRIES,
    ADD_ROW,
    ADD_FOR_EACH,
    ADD_INPUT,
    MINUS_MEAN,
    SUM_ALL,
    ONES,
    TIMES_Y,
    OVER_Y,
    TIMES_X,
    ANOTHER,
    ONE_OF_ROWS,
    RANDOM,
    ZERO,
    LINEAR_FAULTS,
    /* of the gradient itself */
    ROUNDED = LINEAR_FAULTS,
    FEW_BITS,
    ABSOLUTE,
    POSITIVE,
    SQUARED,
    CONSTANT_ADDED,
    CONSTANT,
    SOME_NAN,
    ADDED_TO_GARBAGE,
    LARGEST_OFF,
    FAULTS
};

static double factor_of(uint64_t *seed)
{
    static const double some[] = {2, 0.5, -1, 3, 0.25, 1.0 / 3, 0.9, 1.01, 0, -2, 0.915};
    return random_chance(seed, 0.6)
               ? some[random_below(seed, (int64_t)(sizeof some / sizeof *some))]
               : random_in(seed, -2, 3);
}

static int64_t width(const gd_tensor *x)
{
    return gd_tensor_ndim(x) ? gd_tensor_dim(x, -1) : 1;
}

static void scale(double *j, int64_t count, int64_t stride, double factor)
{
    for (int64_t i = 0; i < count; i++) j[i * stride] *= factor;
}

/* Rows, or columns, by another order: each from (i * sign + by). */
static void reorder(double *j, int64_t n, int64_t m, int64_t sign, int64_t by, bool of_rows)
{
    double *copy = fresh(n * m);
    memcpy(copy, j, (size_t)(n * m) * sizeof *j);
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < m; k++) {
            const int64_t from = of_rows ? (r * sign + by + n) % n : r;
            const int64_t at = of_rows ? k : (k * sign + by + m) % m;
            j[r * m + k] = copy[from * m + at];
        }
    free(copy);
}

static void keep_some(double *row, int64_t m, int64_t keep, bool last)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < m; i++) {
        double *entry = &row[last ? m - 1 - i : i];
        if (*entry != 0 && kept++ >= keep) *entry = 0;
    }
}

/* The dy whose index along an axis is, or is not, that of a random one. */
static void drop_box(const faulty_op *f, double *j, uint64_t *seed, const gd_spec *y)
{
    const int axis = y->ndim ? (int)random_below(seed, y->ndim) : 0;
    int64_t stride = 1;
    for (int k = axis + 1; k < y->ndim; k++) stride *= y->shape[k];
    const int64_t size = y->ndim ? y->shape[axis] : 1, index = random_below(seed, size);
    const bool inside = random_chance(seed, 0.5);
    for (int64_t k = 0; k < f->columns; k++)
        if ((k / stride % size == index) == inside) scale(j + k, f->rows, f->columns, 0);
}

/* Changes the matrix. */
static void plant(const faulty_op *f, uint64_t kind, uint64_t *seed, const gd_spec *y)
{
    double *j = f->ours;
    const int64_t n = f->rows, m = f->columns, r = random_below(seed, n), k = random_below(seed, m);
    const double factor = factor_of(seed), size = size_of(j, n * m), *x = NULL;
    const int64_t other = random_below(seed, n), columns = width(f->x[f->input]);
    double *value = fresh(n), column = 0;
    gd_tensor_read_f64(f->x[f->input], value, n);
    x = value;
    switch (kind) {
    case SCALE_ALL:
        scale(j, n * m, 1, factor);
        break;
    case SCALE_ROW:
        scale(j + r * m, m, 1, factor);
        break;
    case SCALE_COLUMN:
        scale(j + k, n, m, factor);
        break;
    case SCALE_ENTRY:
        j[r * m + k] *= factor;
        break;
    case SCALE_SOME:
        for (int64_t i = 0; i < n; i++)
            if (random_chance(seed, 0.4)) scale(j + i * m, m, 1, factor);
        break;
    case SCALE_ROWS:
        for (int64_t i = 0; i < n; i++) scale(j + i * m, m, 1, 1 + (double)(i / columns));
        break;
    case SCALE_COLUMNS:
        for (int64_t i = 0; i < m; i++) scale(j + i, n, m, factor_of(seed));
        break;
    case SCALE_OTHERS:
        for (int64_t i = 0; i < n * m; i++)
            if (i / m != i % m) j[i] *= factor;
        break;
    case DROP_ROW:
        scale(j + r * m, m, 1, 0);
        break;
    case DROP_COLUMN:
        scale(j + k, n, m, 0);
        break;
    case DROP_BOX:
        drop_box(f, j, seed, y);
        break;
    case DROP_ENTRIES:
        for (int64_t i = 0; i < n * m; i++)
            if (random_chance(seed, 0.2)) j[i] = 0;
        break;
    case COPY_ROW:
        memcpy(j + r * m, j + other * m, (size_t)m * sizeof *j);
        break;
    case SWAP_ROWS:
        for (int64_t i = 0; i < m; i++) {
            const double v = j[r * m + i];
            j[r * m + i] = j[other * m + i];
            j[other * m + i] = v;
        }
        break;
    case ROTATE_ROWS:
        reorder(j, n, m, 1, random_chance(seed, 0.5) ? 1 : columns % n, true);
        break;
    case REVERSE_ROWS:
        reorder(j, n, m, -1, n - 1, true);
        break;
    case ROTATE_COLUMNS:
        reorder(j, n, m, 1, 1, false);
        break;
    case SWAP_COLUMNS:
        reorder(j, n, m, -1, m - 1, false);
        break;
    case TRANSPOSE:
        for (int64_t i = 0; i < n && n == m; i++)
            for (int64_t l = 0; l < i; l++) {
                const double v = j[i * m + l];
                j[i * m + l] = j[l * m + i];
                j[l * m + i] = v;
            }
        break;
    case KEEP_LAST: {
        const int64_t keep = 1 + random_below(seed, 3);
        const bool last = random_chance(seed, 0.5);
        for (int64_t i = 0; i < n; i++) keep_some(j + i * m, m, keep, last);
        break;
    }
    case KEEP_LAST_ONCE:
        keep_some(j + r * m, m, 1 + random_below(seed, 2), true);
        break;
    case OWN_ALONE:
    case OWN_PARTLY:
        for (int64_t i = 0; i < n * m; i++)
            if (i / m != i % m && (kind == OWN_ALONE || random_chance(seed, 0.7))) j[i] = 0;
        break;
    case ADD_ENTRY:
        j[r * m + k] += factor * size;
        break;
    case ADD_ENTRIES:
        for (int i = 0; i < 4; i++)
            j[random_below(seed, n) * m + random_below(seed, m)] += size * factor_of(seed);
        break;
    case ADD_ROW:
        for (int64_t i = 0; i < m; i++) j[r * m + i] += size * factor_of(seed);
        break;
    case ADD_FOR_EACH:
    case ADD_INPUT:
        for (int64_t i = 0; i < m; i++) {
            column = random_in(seed, -1, 1) * size;
            for (int64_t l = 0; l < n; l++)
                j[l * m + i] += column * (kind == ADD_INPUT ? x[l] / size_of(x, n) : 1);
        }
        break;
    case MINUS_MEAN:
        for (int64_t i = 0; i < m; i++)
            for (int64_t l = 0; l < n; l += columns) {
                column = 0;
                for (int64_t q = l; q < l + columns; q++) column += j[q * m + i] / (double)columns;
                for (int64_t q = l; q < l + columns; q++) j[q * m + i] -= column;
            }
        break;
    case SUM_ALL:
        for (int64_t l = 0; l < n; l++)
            for (int64_t i = 0; i < m && l != r; i++) j[r * m + i] += j[l * m + i];
        break;
    case ONES:
        for (int64_t i = 0; i < n * m; i++) j[i] = j[i] != 0;
        break;
    case TIMES_Y:
    case OVER_Y:
        for (int64_t i = 0; i < m; i++) {
            const double v = f->y[i] == 0 ? 1 : f->y[i];
            scale(j + i, n, m, kind == TIMES_Y ? v : 1 / v);
        }
        break;
    case TIMES_X:
        for (int64_t i = 0; i < n; i++) scale(j + i * m, m, 1, x[i]);
        break;
    case ANOTHER:
        for (int i = 0; i < f->which->inputs; i++)
            if (i != f->input && f->right[i] && gd_tensor_count(f->x[i]) == n)
                memcpy(j, f->right[i], (size_t)(n * m) * sizeof *j);
        break;
    case ONE_OF_ROWS:
        for (int64_t l = 0; l < n; l += columns)
            for (int64_t i = 0; i < m; i++) j[(l + k % columns) * m + i] += size;
        break;
    case RANDOM:
        for (int64_t i = 0; i < n * m; i++) j[i] = random_in(seed, -1, 1) * size;
        break;
    case ZERO:
        memset(j, 0, (size_t)(n * m) * sizeof *j);
        break;
    default:
        break;
    }
    free(value);
}

/* Spoils a gradient after the product. */
static double spoil(const faulty_op *f, int64_t r, double g, double held)
{
    switch (f->kind) {
    case ROUNDED:
        return (float)g;
    case FEW_BITS:
        return g == 0 ? 0 : ldexp(round(ldexp(g, 8 - ilogb(g))), ilogb(g) - 8);
    case CONSTANT_ADDED:
        return g + 0.37;
    case CONSTANT:
        return 0.5 + 0.01 * (double)r;
    case SOME_NAN:
        return r % 3 == 1 ? NAN : g;
    case ADDED_TO_GARBAGE:
        return g + held;
    default:
        return g;
    }
}

static double of_dy(const faulty_op *f, double dy)
{
    switch (f->kind) {
    case ABSOLUTE:
        return fabs(dy);
    case POSITIVE:
        return dy > 0 ? dy : 0;
    case SQUARED:
        return dy * dy;
    default:
        return dy;
    }
}

/* ---- The backward ------------------------------------------------------------------------- */

static void get_ready(faulty_op *f, const gd_call *call)
{
    f->ready = true;
    f->columns = gd_tensor_count(call->output[0]);
    f->rows = gd_tensor_count(call->input[f->input]);
    for (int i = 0; i < call->inputs; i++) {
        const gd_tensor *x = call->input[i];
        if (!x) continue;
        const gd_dtype dtype = gd_tensor_dtype(x) == GD_INT32 ? GD_INT32 : GD_FLOAT64;
        const int64_t n = gd_tensor_count(x);
        double *value = fresh(n);
        f->x[i] = gd_tensor_create(f->side, dtype, gd_tensor_ndim(x), gd_tensor_shape(x));
        gd_tensor_read_f64(x, value, n);
        gd_tensor_write_f64(f->x[i], value, n);
        free(value);
    }
    f->y = fresh(f->columns);
    outputs(f, f->y);
    for (int i = 0; i < call->inputs; i++)
        if (f->x[i] && gd_tensor_dtype(f->x[i]) == GD_FLOAT64 && !f->which->input[i].fixed)
            f->right[i] = differences(f, f->x[i]);
    const size_t bytes = (size_t)(f->rows * f->columns) * sizeof(double);
    f->ours = fresh(f->rows * f->columns);
    memcpy(f->ours, f->right[f->input], bytes);
    uint64_t seed = f->seed;
    const gd_spec y = gd_spec_like(call->output[0]);
    if (!f->rows || !f->columns) return;
    plant(f, f->kind, &seed, &y);
    plant(f, f->second, &seed, &y);
}

static gd_status faulty_backward(const gd_call *call)
{
    faulty_op *f = (faulty_op *)(uintptr_t)call->op;
    if (!f->ready) get_ready(f, call);
    double *dy = fresh(f->columns);
    gd_tensor_read_f64(call->doutput[0], dy, f->columns);
    for (int i = 0; i < call->inputs; i++) {
        gd_tensor *t = call->dinput[i];
        if (!t) continue;
        const double *j = i == f->input ? f->ours : f->right[i];
        const int64_t n = gd_tensor_count(t);
        double *g = fresh(n), *held = fresh(n);
        gd_tensor_read_f64(t, held, n);
        int64_t most = 0;
        for (int64_t r = 0; r < n; r++) {
            for (int64_t k = 0; k < f->columns; k++)
                g[r] += j[r * f->columns + k] * (i == f->input ? of_dy(f, dy[k]) : dy[k]);
            if (fabs(g[r]) > fabs(g[most])) most = r;
        }
        if (f->kind == LARGEST_OFF && i == f->input) g[most] *= 1.1;
        for (int64_t r = 0; r < n; r++) {
            if (i == f->input) g[r] = spoil(f, r, g[r], call->accumulate[i] ? 0 : held[r]);
            if (call->accumulate[i]) g[r] += held[r];
        }
        gd_tensor_write_f64(t, g, n);
        free(g);
        free(held);
    }
    free(dy);
    return gd_error_status(call->context);
}

/* ---- All ---------------------------------------------------------------------------------- */

static claims_array array_of(const char *name, const gd_tensor *x, double *value)
{
    claims_array a = {.name = name, .ndim = gd_tensor_ndim(x), .count = gd_tensor_count(x)};
    memcpy(a.shape, gd_tensor_shape(x), (size_t)a.ndim * sizeof *a.shape);
    a.value = value;
    return a;
}

typedef struct tally {
    int faults, failed, said, false_ones;
} tally;

/* Compares what is said of the faulty input with the truth. */
static void compare(const faulty_op *f, gd_dtype dtype, const gd_gradcheck_input *in, tally *t)
{
    double *value[CLAIMS_INPUTS] = {NULL};
    claims_truth truth = {.inputs = f->which->inputs,
                          .ours = f->ours,
                          .right = f->right[f->input],
                          .tolerance = dtype == GD_FLOAT32 ? 4e-3 : 1e-5,
                          .nonlinear = f->kind >= LINEAR_FAULTS && f->kind < FAULTS,
                          .nan = f->kind == SOME_NAN ? (f->rows + 1) / 3 : 0,
                          .garbage = f->kind == ADDED_TO_GARBAGE};
    gd_text name[CLAIMS_INPUTS];
    for (int i = 0; i < f->which->inputs; i++) {
        truth.others[i] = f->right[i];
        if (!f->x[i] || gd_tensor_dtype(f->x[i]) != GD_FLOAT64) continue;
        value[i] = fresh(gd_tensor_count(f->x[i]));
        gd_tensor_read_f64(f->x[i], value[i], gd_tensor_count(f->x[i]));
        name[i] = gd_input_name(f->real, i);
        truth.input[i] = array_of(name[i].text, f->x[i], value[i]);
    }
    truth.x = truth.input[f->input];
    gd_no_grad_begin(f->side);
    gd_tensor *y = gd_apply(f->real, (gd_tensor *const *)f->x, f->which->inputs, f->which->args);
    truth.y = array_of("y", y, f->y);
    gd_no_grad_end(f->side);
    gd_step_end(f->side);
    const char *wrong = NULL;
    if (f->kind < LINEAR_FAULTS) wrong = claims_false(&truth, in->finding);
    t->said += in->finding[0] != 0;
    if (wrong) {
        t->false_ones++;
        printf("%s %s %s, %s, fault %d %d: \"%s\": not true: %s\n", f->real->name, f->which->name,
               in->name, gd_dtype_name(dtype), (int)f->kind, (int)f->second, in->finding, wrong);
    }
    for (int i = 0; i < CLAIMS_INPUTS; i++) free(value[i]);
}

static void free_fault(faulty_op *f)
{
    for (int i = 0; i < CLAIMS_INPUTS; i++) free(f->right[i]);
    free(f->ours);
    free(f->y);
    gd_context_free(f->side);
}

/* `f` says which op, case, input, seed and faults. */
static void one_fault(faulty_op f, gd_dtype dtype, tally *t)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.poison = true, .threads = 1});
    f.op = *f.real;
    f.side = gd_context_create(&(gd_context_options){.threads = 1});
    f.op.backward[GD_CPU] = faulty_backward;
    f.op.backward_reads_inputs = f.op.backward_reads_outputs = UINT32_MAX;
    f.op.dinput_over_doutput = f.op.dinput_over_input = 0;
    f.op.strided = false;
    const gd_gradcheck_options options = {.dtype = &dtype, .seed = f.seed, .only_numbers = true};
    gd_gradcheck_report report;
    gd_gradcheck_case(ctx, &f.op, f.which, &options, &report);
    ck_assert_no_error(ctx);
    t->faults++;
    t->failed += report.verdict == GD_VERDICT_FAIL;
    for (int k = 0; k < report.inputs && f.ready; k++)
        if (report.input[k].index == f.input) compare(&f, dtype, &report.input[k], t);
    gd_gradcheck_report_free(&report);
    free_fault(&f);
    gd_context_free(ctx);
}

static bool suits(const gd_op *op, const gd_case *which)
{
    const gd_op_counts counts = gd_op_count(op);
    bool fine = counts.outputs == 1 && op->backward[GD_CPU] && !op->random && !which->kinks &&
                !which->may_be_empty && counts.inputs != GD_ANY_INPUTS;
    for (int i = 0; i < which->inputs; i++) {
        int64_t count = 1;
        for (int axis = 0; axis < which->input[i].ndim; axis++)
            count *= which->input[i].shape[axis];
        fine = fine && count <= MOST && (count > 0 || which->input[i].absent);
    }
    return fine;
}

/* Every fault in every case, with a second one in every third. */
static void all_faults(gd_dtype dtype, tally *t)
{
    const gd_op *op;
    uint64_t seed = dtype == GD_FLOAT32 ? 77 : 5;
    for (int o = 0; (op = gd_op_at(NULL, o)); o++) {
        for (int i = 0; i < op->case_count; i++) {
            const gd_case *which = &op->cases[i];
            if (!suits(op, which)) continue;
            for (int input = 0; input < which->inputs; input++) {
                const gd_case_input *in = &which->input[input];
                if (in->absent || in->fixed || in->fill == GD_FILL_INDEX) continue;
                for (int n = 0; n < (test_brief() ? 2 : SEEDS); n++) {
                    const uint64_t kind = (uint64_t)random_below(&seed, FAULTS);
                    const bool twice = kind < LINEAR_FAULTS && random_chance(&seed, 0.3);
                    const uint64_t second =
                        twice ? (uint64_t)random_below(&seed, LINEAR_FAULTS) : FAULTS;
                    const faulty_op f = {.real = op,
                                         .which = which,
                                         .seed = random_bits(&seed) % 100000,
                                         .kind = kind,
                                         .second = second,
                                         .input = input};
                    one_fault(f, dtype, t);
                }
            }
        }
    }
    printf("%s: %d faults, %d of them fail, %d findings, %d false\n", gd_dtype_name(dtype),
           t->faults, t->failed, t->said, t->false_ones);
    fflush(stdout);
}

LOOP_TEST(no_claim_is_false, 2)
{
    tally t = {0};
    all_faults(_i ? GD_FLOAT32 : GD_FLOAT64, &t);
    ck_assert_int_eq(t.false_ones, 0);
    ck_assert_int_gt(t.said, t.faults / 3);
}

CHECK_MAIN("gradcheck, claims")
