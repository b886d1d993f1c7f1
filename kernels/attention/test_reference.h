/* test_reference.h - attention as in the textbook: all scores, softmax, values, in double. */
#ifndef GRADUS_TEST_ATTENTION_REFERENCE_H
#define GRADUS_TEST_ATTENTION_REFERENCE_H

#include "op_test.h"

typedef struct sizes {
    int64_t B, T, S, H, KV, D, E;
    bool causal;
    double scale; /* 0: the default */
} sizes;

typedef struct reference {
    double *y, *dq, *dk, *dv;
    double *ds; /* [B, H, T, S]: by the scores, as scaled and masked */
} reference;

typedef struct operands {
    const double *q, *k, *v, *dy;
    const double *keep, *bias; /* [B, H, T, S], or NULL */
} operands;

/* With weights p_ij = softmax_j(scale q_i k_j + bias_ij), times keep_ij (where they are
 * given; a row that is -inf throughout has weights 0):
 * y_i = sum p_ij v_j,  dv_j = sum p_ij dy_i,
 * ds_ij = p_ij (dy_i v_j - sum_j p_ij dy_i v_j),  dq_i = scale sum ds_ij k_j,  dk_j alike. */
static inline reference attend(const sizes *z, operands in)
{
    const double *q = in.q, *k = in.k, *v = in.v, *dy = in.dy, *keep = in.keep, *bias = in.bias;
    int64_t G = z->H / z->KV, offset = z->S - z->T;
    double scale = z->scale != 0 ? z->scale : 1 / sqrt((double)z->D);
    reference r = {zeros(z->B * z->T * z->H * z->E), zeros(z->B * z->T * z->H * z->D),
                   zeros(z->B * z->S * z->KV * z->D), zeros(z->B * z->S * z->KV * z->E),
                   zeros(z->B * z->H * z->T * z->S)};
    double *p = zeros(z->S), *dp = zeros(z->S);
    for (int64_t b = 0; b < z->B; b++) {
        for (int64_t h = 0; h < z->H; h++) {
            for (int64_t t = 0; t < z->T; t++) {
                int64_t seen = z->causal ? t + offset + 1 : z->S, iq = ((b * z->T + t) * z->H + h);
                double largest = -INFINITY, total = 0, mean = 0;
                for (int64_t s = 0; s < seen; s++) {
                    int64_t ik = (b * z->S + s) * z->KV + h / G;
                    p[s] = 0;
                    for (int64_t d = 0; d < z->D; d++)
                        p[s] += scale * q[iq * z->D + d] * k[ik * z->D + d];
                    if (bias) p[s] += bias[((b * z->H + h) * z->T + t) * z->S + s];
                    largest = fmax(largest, p[s]);
                }
                if (largest == -INFINITY) continue;
                for (int64_t s = 0; s < seen; s++) total += p[s] = exp(p[s] - largest);
                for (int64_t s = 0; s < seen; s++) {
                    int64_t ik = (b * z->S + s) * z->KV + h / G;
                    double times = keep ? keep[((b * z->H + h) * z->T + t) * z->S + s] : 1;
                    p[s] /= total;
                    dp[s] = 0;
                    for (int64_t e = 0; e < z->E; e++) {
                        r.y[iq * z->E + e] += times * p[s] * v[ik * z->E + e];
                        r.dv[ik * z->E + e] += times * p[s] * dy[iq * z->E + e];
                        dp[s] += times * dy[iq * z->E + e] * v[ik * z->E + e];
                    }
                    mean += p[s] * dp[s];
                }
                for (int64_t s = 0; s < seen; s++) {
                    int64_t ik = (b * z->S + s) * z->KV + h / G;
                    double ds = scale * p[s] * (dp[s] - mean);
                    r.ds[((b * z->H + h) * z->T + t) * z->S + s] = p[s] * (dp[s] - mean);
                    for (int64_t d = 0; d < z->D; d++) {
                        r.dq[iq * z->D + d] += ds * k[ik * z->D + d];
                        r.dk[ik * z->D + d] += ds * q[iq * z->D + d];
                    }
                }
            }
        }
    }
    free(p), free(dp);
    return r;
}

static inline void free_reference(reference r)
{
    free(r.y), free(r.dq), free(r.dk), free(r.dv), free(r.ds);
}

#endif
