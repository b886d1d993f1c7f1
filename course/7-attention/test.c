/* test.c - assignment 7: attention, and a block that trains by the student's backward. */
#include "grader.h"

#include "calls.h"

/* ---- The forwards ---------------------------------------------------------------------------- */

/* Adds to y. n: positions, heads, and the columns of a head. */
static void attend(const int64_t *n, const double *q, const double *k, const double *v, double *y)
{
    const int64_t columns = n[1] * n[2];
    for (int64_t i = 0; i < n[0]; i++) {
        for (int64_t h = 0; h < columns; h += n[2]) {
            double sum = 0;
            /* once for the sum, once for what is divided by it */
            for (int pass = 0; pass < 2; pass++) {
                for (int64_t j = 0; j <= i; j++) {
                    double score = 0;
                    for (int64_t c = h; c < h + n[2]; c++)
                        score += q[i * columns + c] * k[j * columns + c];
                    const double e = exp(score / sqrt((double)n[2]));
                    for (int64_t c = h; pass && c < h + n[2]; c++)
                        y[i * columns + c] += e / sum * v[j * columns + c];
                    if (!pass) sum += e;
                }
            }
        }
    }
}

static void attention(const int64_t *n, double *const *a)
{
    memset(a[3], 0, sizeof(double) * (size_t)n[0]);
    attend(n + 1, a[0], a[1], a[2], a[3]);
}

/* y += x w, x [t, n], w [n, n] */
static void add_product(int64_t t, int64_t n, const double *x, const double *w, double *y)
{
    for (int64_t i = 0; i < t; i++)
        for (int64_t k = 0; k < n; k++)
            for (int64_t j = 0; j < n; j++) y[i * n + j] += x[i * n + k] * w[k * n + j];
}

/* a: x, g, w; y */
static void block(const int64_t *sizes, double *const *a)
{
    const int64_t size = sizes[0], t = sizes[1], n = sizes[2];
    double *h = grader_alloc(5 * size, sizeof *h), *q = h + size;
    for (int64_t i = 0; i < t; i++) {
        const double *x = a[0] + i * n;
        double squares = 0;
        for (int64_t k = 0; k < n; k++) squares += x[k] * x[k];
        for (int64_t k = 0; k < n; k++)
            h[i * n + k] = a[1][k] * x[k] / sqrt(squares / (double)n + 1e-5);
    }
    for (int64_t i = 0; i < 3; i++) add_product(t, n, h, a[2] + i * n * n, q + i * size);
    memcpy(a[3], a[0], sizeof(double) * (size_t)size);
    attend((int64_t[]){t, HEADS(n), n / HEADS(n)}, q, q + size, q + 2 * size, h + 4 * size);
    add_product(t, n, h + 4 * size, a[2] + 3 * n * n, a[3]);
    free(h);
}

static const grader_function functions[] = {
    {"attention_backward", 40,
     "dv, which needs p alone: p[i][j] says how much of v[j] went to y[i]",
     "q[T, H, D] k[T, H, D] v[T, H, D] -> y[T, H, D]", "q k v dy dq dk dv", attention},
    {"block_backward", 40, "x is read twice: dy goes to dx as it is, and then by all of the rest",
     "x[T, N] g[N] w[4, N, N] -> y[T, N]", "x g w dy dx dg dw", block,
     GRADER_LIKE({0}, {GD_NORMAL(1, 0.5)}, {GD_NORMAL(0, 0.5)})}};

/* ---- Training -------------------------------------------------------------------------------- */

/* A text of two halves, of which the second repeats the first: what comes next can be read TEXT / 2
 * - 1 positions before. */
enum { TEXT = 12, T = TEXT - 1, LETTERS = 6, N = 16, TEXTS = 4, STEPS = 150 };
enum { /* the parameters: of a letter, of a position, g, w, and what makes logits of y */
       LETTER = 0,
       POSITION = LETTER + LETTERS * N,
       G = POSITION + T * N,
       W = G + N,
       OUT = W + 4 * N * N,
       PARAMETERS = OUT + N * LETTERS
};

typedef struct model {
    double p[PARAMETERS], grad[PARAMETERS], moments[2 * PARAMETERS];
    uint64_t random;
} model;

/* 0 to below 1; a linear congruence, of which the high bits are random enough */
static double draw(model *m)
{
    m->random = m->random * 6364136223846793005U + 1442695040888963407U;
    return (double)(m->random >> 40) / (double)(1 << 24);
}

/* The loss of one text, whose gradients are added to those of the parameters. A failed call of the
 * student's is the reason in *why. */
static double learn_text(grader *g, model *m, const char **why)
{
    static double x[T * N], y[T * N], dx[T * N], dy[T * N];
    const int64_t n[CHILD_SIZES] = {T * N, T, N};
    const double share = 1.0 / (TEXT / 2 * TEXTS);
    int text[TEXT];
    double loss = 0;
    for (int i = 0; i < TEXT; i++)
        text[i] = i < TEXT / 2 ? (int)(draw(m) * LETTERS) : text[i - TEXT / 2];
    for (int i = 0; i < T * N; i++)
        x[i] = m->p[LETTER + text[i / N] * N + i % N] + m->p[POSITION + i];
    block(n, (double *[]){x, m->p + G, m->p + W, y});
    memset(dx, 0, sizeof dx);
    memset(dy, 0, sizeof dy);
    for (int i = TEXT / 2 - 1; i < T; i++) {
        double logit[LETTERS] = {0}, sum = 0;
        for (int j = 0; j < LETTERS; j++) {
            for (int k = 0; k < N; k++) logit[j] += y[i * N + k] * m->p[OUT + k * LETTERS + j];
            sum += exp(logit[j]);
        }
        loss += share * (log(sum) - logit[text[i + 1]]);
        for (int j = 0; j < LETTERS; j++) {
            const double d = share * (exp(logit[j]) / sum - (j == text[i + 1]));
            for (int k = 0; k < N; k++) {
                m->grad[OUT + k * LETTERS + j] += d * y[i * N + k];
                dy[i * N + k] += d * m->p[OUT + k * LETTERS + j];
            }
        }
    }
    const student_array arrays[] = {{"x", x, T * N, sizeof *x, false},
                                    {"g", m->p + G, N, sizeof *x, false},
                                    {"w", m->p + W, 4 * N * N, sizeof *x, false},
                                    {"dy", dy, T * N, sizeof *x, false},
                                    {"dx", dx, T * N, sizeof *x, true},
                                    {"dg", m->grad + G, N, sizeof *x, true},
                                    {"dw", m->grad + W, 4 * N * N, sizeof *x, true}};
    *why = student_call(&g->student, false, "block_backward", n, arrays, 7);
    for (int i = 0; i < T * N; i++) {
        m->grad[LETTER + text[i / N] * N + i % N] += dx[i];
        m->grad[POSITION + i] += dx[i];
    }
    return loss;
}

static void train(grader *g)
{
    grader_row *row = grader_add_row(g, "a block that trains");
    static model m;
    const char *why = NULL;
    double loss = 0;
    memset(&m, 0, sizeof m);
    m.random = g->seed;
    for (int i = 0; i < PARAMETERS; i++)
        m.p[i] = i >= G && i < W ? 1 : (2 * draw(&m) - 1) * (i < G ? 1 : 0.3);
    for (int k = 0; k < STEPS && !why; k++) {
        memset(m.grad, 0, sizeof m.grad);
        loss = 0;
        for (int i = 0; i < TEXTS && !why; i++) loss += learn_text(g, &m, &why);
        grader_adam(m.p, m.moments, m.grad, PARAMETERS, k, 0.01);
    }
    grader_cell(row, 0, 20, !why, "%s", why ? why : "");
    grader_cell(row, 0, 0, loss < 0.05,
                "after %d steps the loss is %.3f, wanted less than 0.05; a guess has %.3f",
                (int)STEPS, loss, log(LETTERS));
}

const grader_assignment grader_this = {
    .name = "7-attention", .functions = functions, .count = 2, .more = train};
