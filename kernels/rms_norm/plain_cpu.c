/* plain_cpu.c - RMSNorm as README.md derives it, one loop for one formula, for every dtype, stride
 * and option. It is to be read, and for tests: rms_norm_cpu.c must compute the same
 * (test_rms_norm_kernels.c).
 *
 * A tensor of the problem is get(&x, i, k): row i, column k. */
#include "rms_norm/tiles.h"

static REAL get(const rms_matrix *t, int64_t i, int64_t k)
{
    REAL value;
    return *rms_row_in(t, i, k, 1, &value);
}

/* = or += value */
static void put(const rms_matrix *t, int64_t i, int64_t k, REAL value)
{
    rms_row_out(t, i, k, &value, 1);
}

static REAL w_at(const rms_work *v, int64_t i, int64_t k)
{
    REAL value;
    return *rms_w_in(v, i, k, 1, &value);
}

static REAL xhat_before_weight(const gd_rms_norm_problem *p, REAL x, REAL rstd)
{
    REAL rounded;
    x = *rms_rounded(p, &x, &rstd, &rounded, 1);
    return rms_norm_xhat(x, rstd);
}

void GD_REAL_NAME(rms_norm_plain_forward)(const gd_rms_norm_problem *p, const gd_rms_norm_values *v)
{
    const rms_work f = rms_forward_of(p, v);
    const int64_t N = p->cols;
    for (int64_t i = 0; i < p->rows; i++) {
        double squares = 0;
        for (int64_t k = 0; k < N; k++) {
            if (v->residual) put(&f.x, i, k, get(&f.branch, i, k) + get(&f.residual, i, k));
            const double x = (double)get(&f.x, i, k);
            squares += x * x;
        }
        const REAL rstd = (REAL)rms_norm_rstd(squares, (double)N, p->eps);
        GD_STEP("a", squares / (double)N);
        GD_STEP("rms", sqrt(squares / (double)N + p->eps));
        GD_STEP("rstd", rstd);
        if (v->rstd) ((REAL *)v->rstd)[i] = rstd;
        for (int64_t k = 0; k < N; k++) {
            const REAL xhat = xhat_before_weight(p, get(&f.x, i, k), rstd);
            const REAL w = w_at(&f, i, k), b = v->bias ? get(&f.bias, i, k) : 0;
            put(&f.y, i, k, rms_norm_y(xhat, w, b));
        }
    }
}

/* dx of row i: also that of the residual, and of the x that was added to it. */
static void dx_row(const gd_rms_norm_problem *p, const rms_work *b, REAL rstd, int64_t i)
{
    double dot = 0;
    for (int64_t k = 0; k < p->cols; k++) {
        const REAL h = rms_norm_h(get(&b->dy, i, k), w_at(b, i, k));
        const REAL xhat = rms_norm_xhat(get(&b->x, i, k), rstd);
        dot += (double)rms_norm_term(h, xhat);
        GD_STEP("h", h);
        GD_STEP("xhat", xhat);
    }
    const REAL m = (REAL)rms_norm_m(dot, (double)p->cols);
    GD_STEP("m", m);
    const REAL c = rstd * rstd * m; /* [c] */
    for (int64_t k = 0; k < p->cols; k++) {
        const REAL u = get(&b->dy, i, k) * rstd; /* [u] */
        REAL dx = rms_norm_dx(u, w_at(b, i, k), c, get(&b->x, i, k));
        GD_STEP("along", rms_norm_xhat(get(&b->x, i, k), rstd) * m);
        GD_STEP("through", dx);
        if (b->dsum.data) dx = add_rms_norm_dx(dx, get(&b->dsum, i, k));
        if (b->dx.data) put(&b->dx, i, k, dx);
        if (b->dbranch.data) put(&b->dbranch, i, k, dx);
    }
}

void GD_REAL_NAME(rms_norm_plain_backward)(const gd_rms_norm_problem *p,
                                           const gd_rms_norm_gradients *g)
{
    const rms_work b = rms_backward_of(p, g);
    const REAL *rstd = g->rstd;
    const int64_t heads = rms_norm_weight_rows(p);
    for (int64_t first = 0; first < heads; first++) /* rows of the weight; dx may overwrite dy */
        for (int64_t k = 0; k < p->cols; k++) {
            double dw = 0, db = 0;
            for (int64_t i = first; i < p->rows; i += heads) {
                const REAL dy = get(&b.dy, i, k);
                const REAL xhat = xhat_before_weight(p, get(&b.x, i, k), rstd[i]);
                dw += (double)rms_norm_dw(dy, xhat);
                GD_STEP("parts", rms_norm_dw(dy, xhat));
                db += (double)dy; /* [db] */
            }
            if (g->dweight) put(&b.dweight, first, k, (REAL)dw);
            if (g->dbias) put(&b.dbias, first, k, (REAL)db);
        }
    for (int64_t i = 0; (g->dx || g->dbranch) && i < p->rows; i++) dx_row(p, &b, rstd[i], i);
}
