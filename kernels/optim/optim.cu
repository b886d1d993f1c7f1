// optim.cu - the optimizers on a GPU: the formulas of formula.h, one pass over the arrays.
//
// An update does a few operations for every 28 bytes it moves (AdamW), so the memory decides how
// long it takes: threads take 16 bytes of each array at a time, and parameters in 16 bits are
// rounded in the same pass. The gradients are clipped in it, too. Whether there is an update at
// all, and its numbers, one small kernel decides before; none of it passes through the host.
#include <math.h>

#include <utility>

#include "cuda/device_cuda.h"
#include "optim/decide.h"
#include "optim/formula.h"
#include "optim/rounded.cuh"
#include "touched.cuh"

// ---- Deciding ---------------------------------------------------------------------------------

template <class T>
static __global__ void add_loss_kernel(gd_update_state *state, T *dloss, const T *loss,
                                       double fraction)
{
    gd_in_turn();
    state->loss += fraction * (double)gd_load(*loss);
    *dloss = gd_store<T>(fraction * (double)state->scale.factor);
}

extern "C" void gd_add_loss_cuda(gd_update_state *state, void *dloss, const void *loss,
                                 gd_dtype dtype, double fraction, gd_context *ctx)
{
    gd_by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        return gd_launch(ctx, "add_loss", {1, 1}, add_loss_kernel<T>, state, (T *)dloss,
                         (const T *)loss, fraction);
    });
}

// A thread for each note that kernels may have left (device_cuda.h), which lies in the host's
// memory and so takes a microsecond to be read: all are read at once. The slot lies there, too.
// Then a thread for each count.
static_assert(GD_CUDA_FAULTS == GD_UPDATE_COUNTS, "a block has a thread for each of both");
static __global__ void __launch_bounds__(GD_CUDA_FAULTS)
    decide_kernel(gd_update_state *state, gd_update_slot *slots, gd_update_rule rule,
                  const volatile int64_t *fault_words, int faults)
{
    gd_in_turn();
    const bool fault = (int)threadIdx.x < faults && fault_words[threadIdx.x] != 0;
    const bool any = __syncthreads_or(fault);
    unsigned long long nanoseconds; // the same clock for all kernels, also across graphs
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    if (threadIdx.x == 0 && slots) gd_decide(state, slots, &rule, any, (double)nanoseconds * 1e-9);
    __syncthreads();
    gd_count_update(state, &rule, threadIdx.x);
}

extern "C" void gd_decide_cuda(gd_update_state *state, gd_update_slot *slots,
                               const gd_update_rule *rule, gd_context *ctx)
{
    const gd_cuda *cuda = gd_cuda_of(ctx);
    gd_launch(ctx, "decide", {1, GD_CUDA_FAULTS}, decide_kernel, state, slots, *rule,
              cuda->fault_words, cuda->faults);
}

// ---- Buffers ----------------------------------------------------------------------------------

static __global__ void settle_kernel(int4 *current, int4 *committed, int64_t n,
                                     const gd_update_state *state)
{
    gd_in_turn();
    int4 *to = state->apply ? committed : current;
    const int4 *from = state->apply ? current : committed;
    GD_EACH(i, n) to[i] = from[i];
}

extern "C" void gd_settle_cuda(void *current, void *committed, int64_t bytes,
                               const gd_update_state *state, gd_context *ctx)
{
    const int64_t n = bytes / (int64_t)sizeof(int4);
    gd_launch(ctx, "settle", gd_grid_for(n), settle_kernel, (int4 *)current, (int4 *)committed, n,
              state);
}

// ---- Rules ------------------------------------------------------------------------------------
//
// A rule is its gd_rule_kind, a parameter of templates.

template <gd_rule_kind KIND>
constexpr bool is_adam = KIND == GD_RULE_ADAMW || KIND == GD_RULE_ADAM;

// How many states it may have; the first `required` of them always exist.
template <gd_rule_kind KIND>
constexpr int states = 1 + is_adam<KIND> + 2 * (KIND == GD_RULE_RMSPROP) -
                       (KIND == GD_RULE_AVERAGE);
template <gd_rule_kind KIND>
constexpr int required = KIND == GD_RULE_RMSPROP ? 1
                         : KIND == GD_RULE_SGD   ? 0
                                                 : states<KIND>;

// Whether it may leave weights without a gradient as they are (src/optim/apply.c).
template <gd_rule_kind KIND>
constexpr bool is_sparse = is_adam<KIND> || KIND == GD_RULE_SGD || KIND == GD_RULE_ADAGRAD;

// The same in every update. In double is what is multiplied by numbers of the state before
// it is rounded.
template <class T>
struct rule_numbers {
    double rate, rate_decay, decay_of_weight; // the last of AdamW and Lion
    T decay, beta1, fresh1, beta2, fresh2, eps, momentum, fresh;
    bool plain, nesterov, lazy, centered; // plain: SGD without a velocity

    rule_numbers(const gd_rule &r, const gd_update_arrays &a)
        : rate(r.rate), rate_decay(r.rate_decay),
          decay_of_weight(r.kind == GD_RULE_ADAM ? 0 : r.weight_decay), decay((T)r.weight_decay),
          beta1((T)r.beta1), fresh1((T)(1 - r.beta1)), beta2((T)r.beta2), fresh2((T)(1 - r.beta2)),
          eps((T)gd_option_of_dtype(a.dtype, r.eps)), momentum((T)r.momentum),
          fresh((T)(1 - r.dampening)), plain(r.kind == GD_RULE_SGD && !a.state[0]),
          nesterov(r.nesterov && !plain), lazy(r.lazy), centered(a.state[2])
    {
        if (plain) momentum = 0;
    }
};

// The same for all elements of an update; optim_cpu.c says what they are.
template <class T>
struct update_numbers {
    T lr, keep, rate, scale;
    bool first;
};

template <gd_rule_kind KIND, class T>
__device__ inline void begin(update_numbers<T> &u, const rule_numbers<T> &r,
                             const gd_update_state *state, const gd_update_count *count)
{
    if constexpr (KIND == GD_RULE_AVERAGE) {
        u.first = !state || state->made == 1;
        return;
    }
    const double lr = state->rate * r.rate;
    if constexpr (is_adam<KIND>) {
        u.rate = (T)(count->rate_by_bias1 * r.rate);
        u.scale = (T)count->root_by_bias2;
    } else if constexpr (KIND == GD_RULE_ADAGRAD) {
        u.lr = (T)(lr / (1 + (double)(count->made - 1) * r.rate_decay));
    } else {
        u.lr = (T)lr;
    }
    if constexpr (is_adam<KIND> || KIND == GD_RULE_LION) u.keep = (T)(1 - lr * r.decay_of_weight);
    if constexpr (KIND == GD_RULE_SGD) u.first = r.plain || count->made == 1;
}

// Updates one weight w and its states s[0], s[1], s[2] by its gradient g.
template <gd_rule_kind KIND, class T>
__device__ inline void update_element(T &w, T *s, T g, const rule_numbers<T> &r,
                                      const update_numbers<T> &u)
{
    if constexpr (KIND == GD_RULE_AVERAGE) {
        w = u.first ? g : average_weight(w, g, r.fresh1);
    } else if constexpr (KIND == GD_RULE_LION) {
        const T mixed = averaged(s[0], g, r.beta1, r.fresh1);
        const T sign = mixed > 0 ? (T)1 : mixed < 0 ? (T)-1 : mixed;
        s[0] = averaged(s[0], g, r.beta2, r.fresh2);
        w = lion_weight(w, sign, u.keep, u.lr);
    } else if constexpr (is_adam<KIND>) {
        if (r.lazy && g == 0) return;
        const T grad = KIND == GD_RULE_ADAM ? decayed(g, r.decay, w) : g;
        s[0] = averaged(s[0], grad, r.beta1, r.fresh1);
        s[1] = averaged_square(s[1], grad, r.beta2, r.fresh2);
        w = adamw_weight(w, s[0], s[1], u.keep, u.rate, u.scale, r.eps);
    } else {
        const T grad = decayed(g, r.decay, w);
        if constexpr (KIND == GD_RULE_SGD) {
            s[0] = u.first ? grad : averaged(s[0], grad, r.momentum, r.fresh);
            w -= u.lr * sgd_step(grad, s[0], r.momentum, r.nesterov);
        } else if constexpr (KIND == GD_RULE_ADAGRAD) {
            s[0] += grad * grad;
            w = adagrad_weight(w, grad, s[0], u.lr, r.eps);
        } else {
            static_assert(KIND == GD_RULE_RMSPROP, "a rule is missing");
            s[0] = averaged_square(s[0], grad, r.beta2, r.fresh2);
            s[2] = averaged(s[2], grad, r.beta2, r.fresh2);
            const T variance = r.centered ? rmsprop_variance(s[0], s[2]) : s[0];
            s[1] = r.momentum * s[1] + rmsprop_step(grad, variance < 0 ? (T)0 : variance, r.eps);
            w -= u.lr * s[1];
        }
    }
}

// ---- One pass ---------------------------------------------------------------------------------

template <class T>
struct arrays_of {
    T *w, *state[GD_RULE_STATES];
    const T *g;
};

// The pack of elements from `first` on.
template <gd_rule_kind KIND, class T, class R>
__device__ inline void update_pack(const arrays_of<T> &a, R *rounded, int64_t n,
                                   const rule_numbers<T> &rule, const update_numbers<T> &numbers,
                                   gd_factor<T> factor, int64_t first)
{
    constexpr int V = gd_pack_size<T>, S = states<KIND>;
    T weight[V], value[S + 1][V] = {}, grad[V];
    gd_load_guarded(weight, a.w, first, n);
#pragma unroll
    for (int i = 0; i < S; i++)
        if (i < required<KIND> || a.state[i]) gd_load_guarded(value[i], a.state[i], first, n);
    gd_load_guarded(grad, a.g, first, n);
    constexpr bool reads = KIND == GD_RULE_AVERAGE; // the masters: they are its gradients
    if constexpr (!reads) scale_by(grad, factor);
    if constexpr (has_rounded<T, R>) follow(reads ? grad : weight, rounded, first, n);
#pragma unroll
    for (int k = 0; k < V; k++) {
        T s[S + 1];
#pragma unroll
        for (int i = 0; i < S; i++) s[i] = value[i][k];
        update_element<KIND>(weight[k], s, grad[k], rule, numbers);
#pragma unroll
        for (int i = 0; i < S; i++) value[i][k] = s[i];
    }
#pragma unroll
    for (int i = 0; i < S; i++)
        if (i < required<KIND> || a.state[i]) gd_store_guarded(a.state[i], value[i], first, n);
    gd_store_guarded(a.w, weight, first, n);
    if constexpr (has_rounded<T, R> && !reads) round_to(rounded, weight, first, n);
}

// All elements are updated, or those that were touched (SPARSE).
template <gd_rule_kind KIND, bool SPARSE, class T, class R>
static __global__ void update_kernel(arrays_of<T> a, R *rounded, int64_t n, rule_numbers<T> rule,
                                     const gd_update_state *state, const gd_update_count *count,
                                     const uint8_t *touched)
{
    gd_in_turn();
    constexpr int V = gd_pack_size<T>;
    if (state && !state->apply) return;
    __shared__ update_numbers<T> numbers;
    __shared__ gd_factor<T> factor;
    if (threadIdx.x == 0) { // once, since the state's numbers are doubles
        begin<KIND>(numbers, rule, state, count);
        if constexpr (KIND != GD_RULE_AVERAGE) factor = gd_factor<T>::of(state->factor);
    }
    __syncthreads();
    const auto update = [&](int64_t first) {
        update_pack<KIND>(a, rounded, n, rule, numbers, factor, first);
    };
    if constexpr (SPARSE) {
        gd_each_touched_pack<V>(touched, n, update);
    } else {
        GD_EACH(pack, gd_packs(n, V)) update(pack * V);
    }
}

template <gd_rule_kind KIND, class T>
static void update(const gd_update_arrays &arrays, const gd_rule &rule,
                   const gd_update_state *state, gd_context *ctx)
{
    arrays_of<T> a = {(T *)arrays.w, {}, (const T *)arrays.g};
    for (int i = 0; i < GD_RULE_STATES; i++) a.state[i] = (T *)arrays.state[i];
    by_rounded<T>(arrays.rounded, [&](auto *data) {
        using R = std::remove_pointer_t<decltype(data)>;
        auto *kernel = update_kernel<KIND, false, T, R>;
        gd_grid grid = gd_grid_for(arrays.n, gd_threads * gd_pack_size<T>);
        if constexpr (is_sparse<KIND>)
            if (arrays.touched)
                kernel = update_kernel<KIND, true, T, R>,
                grid = gd_grid_of_granules(arrays.n, gd_pack_size<T>);
        gd_launch(ctx, "optimize", grid, kernel, a, data, arrays.n, rule_numbers<T>(rule, arrays),
                  state, arrays.count, arrays.touched);
    });
}

// Calls update() with the rule's kind as a constant: that of those of KIND which it is.
template <int... KIND>
static void update_by(const gd_update_arrays &arrays, const gd_rule &rule,
                      const gd_update_state *state, gd_context *ctx,
                      std::integer_sequence<int, KIND...>)
{
    const bool wide = arrays.dtype == GD_FLOAT64;
    void (*const by_kind[])(const gd_update_arrays &, const gd_rule &, const gd_update_state *,
                            gd_context *) = {wide ? update<(gd_rule_kind)KIND, double>
                                                  : update<(gd_rule_kind)KIND, float>...};
    by_kind[rule.kind](arrays, rule, state, ctx);
}

extern "C" void gd_optimize_cuda(const gd_update_arrays *arrays, const gd_rule *rule,
                                 const gd_update_state *state, gd_context *ctx)
{
    update_by(*arrays, *rule, state, ctx, std::make_integer_sequence<int, GD_RULE_KINDS>());
}
