/* test_rms_norm_kernels.c - the functions of gradus/kernels.h on the CPU against the formulas
 * (test_calls.h): every option, mixes of dtypes, rows anywhere; and the same of the plain kernels,
 * whatever runs by itself. Each call is made by one thread and by four, which must give the same bits;
 * poisoned memory without a result stays as it is. */
#include "op_test.h"
#include "rms_norm/rms_norm.h"
#include "rms_norm/test_calls.h"

/* ---- A call and its tensors --------------------------------------------------------------- */

typedef struct run {
    call_case c;
    gd_rms_norm_problem p;
    call_tensor t[TENSORS];
    void *data[TENSORS]; /* their first numbers; NULL: absent */
    char *memory[TENSORS], *before[TENSORS], *after[TENSORS];
    size_t first[TENSORS], bytes[TENSORS];
} run;

static void wrong_number(const call_case *c, const char *text)
{
    (void)c;
    ck_abort_msg("%s", text);
}

static run make_run(const call_case *c, uint64_t seed)
{
    run r = {.c = *c, .p = problem_of(c)};
    for (int k = 0; k < TENSORS; k++) {
        call_tensor *t = &r.t[k];
        *t = tensor_of(c, k, gd_cpu_rms_norm_workspace(&r.p));
        const size_t size = gd_dtype_size(t->dtype), first = (size_t)t->shift * size;
        r.first[k] = first, r.bytes[k] = first + (size_t)(t->rows * t->stride + 3) * size;
        char **const copies[] = {&r.memory[k], &r.before[k], &r.after[k]};
        for (int i = 0; i < 3; i++) {
            ck_assert_ptr_nonnull(*copies[i] = malloc(r.bytes[k]));
            memset(*copies[i], 0xff, r.bytes[k]);
        }
        for (int64_t i = 0; i < t->rows && t->deviation > 0; i++)
            for (int64_t j = 0; j < t->cols; j++)
                store_number(r.before[k] + first, t->dtype, i * t->stride + j,
                             t->mean + random_in(&seed, -1.7, 1.7) * t->deviation);
        t->before = r.before[k] + first;
    }
    for (int k = 0; k < TENSORS; k++) {
        const int place = place_of(c, k);
        r.t[k].stride = r.t[place].stride;
        r.t[k].after = r.after[place] + r.first[place];
        r.data[k] = r.t[k].present ? r.memory[place] + r.first[place] : NULL;
    }
    return r;
}

static void free_run(run *r)
{
    for (int k = 0; k < TENSORS; k++) free(r->memory[k]), free(r->before[k]), free(r->after[k]);
}

static void reset(run *r, int first, int last)
{
    for (int k = first; k <= last; k++) {
        const int place = place_of(&r->c, k);
        memcpy(r->memory[place], r->before[place], r->bytes[place]);
    }
}

/* Fetches results; the second time they must be what they were. */
static void fetch(run *r, int first, int last, bool again)
{
    for (int k = first; k <= last; k++) {
        const int place = place_of(&r->c, k);
        if (!r->t[k].present) continue;
        if (again && k != WORKSPACE && memcmp(r->after[place], r->memory[place], r->bytes[place]))
            ck_abort_msg("%s depends on the number of threads", tensor_names[k]);
        memcpy(r->after[place], r->memory[place], r->bytes[place]);
        if (!edges_untouched(&r->t[place], r->before[place], r->after[place], r->first[place],
                             r->bytes[place]))
            ck_abort_msg("%s: wrote outside of the rows", tensor_names[k]);
    }
}

/* By the kernels that the library chooses, or by the plain ones. */
static void run_calls(run *r, bool plain)
{
    const gd_rms_norm_values v = values_of_call(r->data, r->t);
    const gd_rms_norm_gradients g = gradients_of_call(&r->c, r->data, r->t);
    const bool wide = is_wide(&r->c);
    for (int again = 0; again < 2; again++) {
        reset(r, X, RSTD);
        if (!plain)
            ck_assert_int_eq(gd_cpu_rms_norm_forward(&r->p, &v, again ? 4 : 1), GD_OK);
        else
            (wide ? rms_norm_plain_forward_f64 : rms_norm_plain_forward_f32)(&r->p, &v);
        fetch(r, Y, RSTD, again);
        if (!r->c.residual) reset(r, X, X); /* y may have taken its place */
        reset(r, DY, WORKSPACE);
        if (!plain)
            ck_assert_int_eq(gd_cpu_rms_norm_backward(&r->p, &g, again ? 4 : 1), GD_OK);
        else
            (wide ? rms_norm_plain_backward_f64 : rms_norm_plain_backward_f32)(&r->p, &g);
        fetch(r, DX, WORKSPACE, again);
    }
}

static void run_case(const call_case *c, uint64_t seed)
{
    row_sums *sums = calloc((size_t)(c->heads * c->cols) + 1, sizeof *sums);
    for (int plain = 0; plain < 2; plain++) {
        run r = make_run(c, seed);
        if (!plain || r.p.rows * r.p.cols > 0) { /* no problem for a kernel */
            run_calls(&r, plain);
            memset(sums, 0, (size_t)(c->heads * c->cols) * sizeof *sums);
            for (int64_t row = 0; row < r.p.rows; row++) check_row(c, r.t, row, 1e-6, sums);
            check_sums(c, r.t, 1e-6, sums);
        }
        free_run(&r);
    }
    free(sums);
}

/* ---- Tests -------------------------------------------------------------------------------- */

TEST_CASE("calls", NULL, NULL)

/* As the two ops call them, and as mixed precision does. */
LOOP_TEST(test_sizes, GD_INT32)
{
    static const int64_t rows[] = {0, 1, 2, 5, 133}, cols[] = {1, 3, 64, 127, 130, 513, 1030};
    for (size_t i = 0; i < sizeof rows / 8; i++)
        for (size_t j = 0; j < sizeof cols / 8; j++) {
            call_case c = plain_case(rows[i], cols[j], (gd_dtype)_i);
            run_case(&c, i * 10 + j);
            c.residual = c.dsum = true;
            run_case(&c, i * 10 + j);
            c.dtype = GD_FLOAT32, c.dbranch = true;
            run_case(&c, i * 10 + j);
        }
}

/* Outputs so large that they are written past the caches. */
TEST(test_past_the_caches)
{
    call_case c = plain_case(1030, 4100, GD_FLOAT32);
    c.gap = 3;
    run_case(&c, 1);
}

LOOP_TEST(test_heads, 2)
{
    static const int64_t heads[] = {1, 3, 8, 32}, cols[] = {64, 80, 33, 130};
    for (size_t i = 0; i < sizeof heads / 8; i++)
        for (size_t j = 0; j < sizeof cols / 8; j++)
            for (int per_head = 0; per_head < 2; per_head++) {
                call_case c = plain_case(11, cols[j], _i ? GD_BFLOAT16 : GD_FLOAT32);
                c.heads = heads[i], c.per_head = per_head;
                run_case(&c, i * 10 + j);
                c.gap = 2 * c.heads * c.cols, c.bias = c.db = true;
                run_case(&c, i * 10 + j);
                c.residual = c.dsum = c.dbranch = c.round = true, c.y_dtype = GD_BFLOAT16;
                run_case(&c, i * 10 + j);
            }
}

TEST_CASE("random", NULL, NULL)

/* Whatever one might ask for. */
LOOP_TEST(test_random_calls, test_rounds(6))
{
    uint64_t seed = (uint64_t)_i + 1;
    for (int i = 0; i < 40; i++) {
        const gd_dtype dtype = (gd_dtype)random_below(&seed, 4);
        call_case c = plain_case(random_below(&seed, 200), random_size(&seed, 1, 600), dtype);
        if (random_chance(&seed, 0.3)) c.heads = random_size(&seed, 1, 5);
        random_options(&c, &seed);
        run_case(&c, random_bits(&seed));
    }
}

TEST_CASE("calls", NULL, NULL)

/* rstd is the forward's only output that may be left out, and changes no other. */
TEST(test_without_rstd)
{
    const call_case c = plain_case(9, 200, GD_FLOAT32);
    run r = make_run(&c, 3);
    gd_rms_norm_values v = values_of_call(r.data, r.t);
    ck_assert_int_eq(gd_cpu_rms_norm_forward(&r.p, &v, 1), GD_OK);
    fetch(&r, Y, Y, false);
    reset(&r, Y, Y);
    v.rstd = NULL;
    ck_assert_int_eq(gd_cpu_rms_norm_forward(&r.p, &v, 1), GD_OK);
    fetch(&r, Y, Y, true);
    free_run(&r);
}

static gd_status forward_of(const gd_rms_norm_problem *p, const gd_rms_norm_values *v)
{
    return gd_cpu_rms_norm_forward(p, v, 1);
}

static gd_status backward_of(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g)
{
    return gd_cpu_rms_norm_backward(p, g, 1);
}

/* Bad calls get their status and write nothing. */
TEST(test_bad_calls)
{
    call_case c = plain_case(6, 40, GD_FLOAT32);
    c.residual = c.dsum = c.dbranch = true, c.y_dtype = GD_BFLOAT16;
    run r = make_run(&c, 1);
    const char *wrong =
        wrong_status(&c, r.data, r.t, forward_of, backward_of, gd_cpu_rms_norm_workspace);
    ck_assert_msg(!wrong, "%s: another status", wrong);
    const gd_rms_norm_values v = values_of_call(r.data, r.t);
    const gd_rms_norm_gradients g = gradients_of_call(&c, r.data, r.t);
    ck_assert_int_eq(gd_cpu_rms_norm_forward(&r.p, &v, 0), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_cpu_rms_norm_backward(&r.p, &g, 0), GD_ERROR_ARGUMENT);
    for (int k = 0; k < TENSORS; k++)
        for (size_t i = 0; i < r.bytes[k]; i++) ck_assert_int_eq(r.memory[k][i], (char)0xff);
    free_run(&r);
}

CHECK_MAIN("rms_norm_kernels")
