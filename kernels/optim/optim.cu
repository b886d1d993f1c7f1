// optim.cu - the optimizers on a GPU: the formulas of formula.h, one pass over the arrays.
//
// An update does a few operations for every 28 bytes it moves (AdamW), so the memory decides how
// long it takes: threads take 16 bytes of each array at a time, and parameters in 16 bits are
// rounded in the same pass. The gradients are clipped in it, too. Whether there is an update at
// all, and its numbers, one small kernel decides before; none of it passes through the host.
#include <math.h>

#include "cuda/device_cuda.h"
#include "optim/decide.h"
#include "optim/formula.h"
#include "optim/rounded.cuh"
#include "touched.cuh"

constexpr int threads = 256;

// ---- Deciding ---------------------------------------------------------------------------------

template <class T>
static __global__ void add_loss_kernel(gd_update_state *state, T *dloss, const T *loss,
                                       double fraction)
{
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
// A rule has what is the same in every update, in the type T that is computed in; begin() gives what
// one update has for all elements, from the state and their count, whose numbers are doubles: one
// thread of a block computes it. element() updates one weight w and its states s[0], s[1], s[2] by its gradient g. There
// are at most `states` of them, of which the first `required` always exist. `sparse`: it may leave weights
// without a gradient as they are (src/optim/apply.c).

template <class T>
static T eps_of(const gd_rule &r)
{
    return (T)gd_option_of_dtype(sizeof(T) == sizeof(double) ? GD_FLOAT64 : GD_FLOAT32, r.eps);
}

template <class T>
struct sgd_rule {
    static constexpr int states = 1, required = 0;
    static constexpr bool clips = true, sparse = true;
    T decay, momentum, fresh;
    double rate;
    bool nesterov, plain;
    struct numbers {
        T lr;
        bool first;
    };
    explicit sgd_rule(const gd_rule &r, bool has_velocity)
        : decay((T)r.weight_decay), momentum(has_velocity ? (T)r.momentum : 0),
          fresh((T)(1 - r.dampening)), rate(r.rate), nesterov(has_velocity && r.nesterov),
          plain(!has_velocity)
    {
    }
    __device__ numbers begin(const gd_update_state *state, const gd_update_count *count) const
    {
        return {(T)(state->rate * rate), plain || count->made == 1};
    }
    __device__ void element(T &w, T *s, T g, const numbers &u) const
    {
        const T grad = decayed(g, decay, w);
        s[0] = u.first ? grad : averaged(s[0], grad, momentum, fresh);
        w -= u.lr * sgd_step(grad, s[0], momentum, nesterov);
    }
};

template <class T>
struct adam_numbers {
    T keep, rate, scale; // optim_cpu.c says what they are
};

template <class T>
struct adamw_rule {
    static constexpr int states = 2, required = 2;
    static constexpr bool clips = true, sparse = true;
    T beta1, fresh1, beta2, fresh2, eps;
    double decay, rate;
    bool lazy;
    using numbers = adam_numbers<T>;
    explicit adamw_rule(const gd_rule &r, bool)
        : beta1((T)r.beta1), fresh1((T)(1 - r.beta1)), beta2((T)r.beta2), fresh2((T)(1 - r.beta2)),
          eps(eps_of<T>(r)), decay(r.weight_decay), rate(r.rate), lazy(r.lazy)
    {
    }
    __device__ numbers begin(const gd_update_state *state, const gd_update_count *count) const
    {
        return {(T)(1 - state->rate * rate * decay), (T)(count->rate_by_bias1 * rate),
                (T)count->root_by_bias2};
    }
    __device__ void element(T &w, T *s, T g, const numbers &u) const
    {
        if (!lazy || g != 0) move(w, s, g, u);
    }
    __device__ void move(T &w, T *s, T g, const numbers &u) const
    {
        s[0] = averaged(s[0], g, beta1, fresh1);
        s[1] = averaged_square(s[1], g, beta2, fresh2);
        w = adamw_weight(w, s[0], s[1], u.keep, u.rate, u.scale, eps);
    }
};

template <class T>
struct adam_rule : adamw_rule<T> {
    T coupled;
    using numbers = adam_numbers<T>;
    explicit adam_rule(const gd_rule &r, bool has_states)
        : adamw_rule<T>(r, has_states), coupled((T)r.weight_decay)
    {
        this->decay = 0;
    }
    __device__ void element(T &w, T *s, T g, const numbers &u) const
    {
        if (!this->lazy || g != 0) this->move(w, s, decayed(g, coupled, w), u);
    }
};

template <class T>
struct rmsprop_rule {
    static constexpr int states = 3, required = 1;
    static constexpr bool clips = true, sparse = false;
    T decay, momentum, beta, fresh, eps;
    double rate;
    bool centered;
    struct numbers {
        T lr;
    };
    explicit rmsprop_rule(const gd_rule &r, bool has_mean)
        : decay((T)r.weight_decay), momentum((T)r.momentum), beta((T)r.beta2),
          fresh((T)(1 - r.beta2)), eps(eps_of<T>(r)), rate(r.rate), centered(has_mean)
    {
    }
    __device__ numbers begin(const gd_update_state *state, const gd_update_count *) const
    {
        return {(T)(state->rate * rate)};
    }
    __device__ void element(T &w, T *s, T g, const numbers &u) const
    {
        const T grad = decayed(g, decay, w);
        s[0] = averaged_square(s[0], grad, beta, fresh);
        s[2] = averaged(s[2], grad, beta, fresh);
        const T variance = centered ? rmsprop_variance(s[0], s[2]) : s[0];
        s[1] = momentum * s[1] + rmsprop_step(grad, variance < 0 ? (T)0 : variance, eps);
        w -= u.lr * s[1];
    }
};

template <class T>
struct adagrad_rule {
    static constexpr int states = 1, required = 1;
    static constexpr bool clips = true, sparse = true;
    T decay, eps;
    double rate, rate_decay;
    struct numbers {
        T lr;
    };
    explicit adagrad_rule(const gd_rule &r, bool)
        : decay((T)r.weight_decay), eps(eps_of<T>(r)), rate(r.rate), rate_decay(r.rate_decay)
    {
    }
    __device__ numbers begin(const gd_update_state *state, const gd_update_count *count) const
    {
        return {(T)(state->rate * rate / (1 + (double)(count->made - 1) * rate_decay))};
    }
    __device__ void element(T &w, T *s, T g, const numbers &u) const
    {
        const T grad = decayed(g, decay, w);
        s[0] += grad * grad;
        w = adagrad_weight(w, grad, s[0], u.lr, eps);
    }
};

template <class T>
struct lion_rule {
    static constexpr int states = 1, required = 1;
    static constexpr bool clips = true, sparse = false;
    T beta1, fresh1, beta2, fresh2;
    double decay, rate;
    struct numbers {
        T keep, lr;
    };
    explicit lion_rule(const gd_rule &r, bool)
        : beta1((T)r.beta1), fresh1((T)(1 - r.beta1)), beta2((T)r.beta2), fresh2((T)(1 - r.beta2)),
          decay(r.weight_decay), rate(r.rate)
    {
    }
    __device__ numbers begin(const gd_update_state *state, const gd_update_count *) const
    {
        return {(T)(1 - state->rate * rate * decay), (T)(state->rate * rate)};
    }
    __device__ void element(T &w, T *s, T g, const numbers &u) const
    {
        const T mixed = averaged(s[0], g, beta1, fresh1);
        const T sign = mixed > 0 ? (T)1 : mixed < 0 ? (T)-1 : mixed;
        s[0] = averaged(s[0], g, beta2, fresh2);
        w = lion_weight(w, sign, u.keep, u.lr);
    }
};

template <class T>
struct average_rule {
    static constexpr int states = 0, required = 0;
    static constexpr bool clips = false, sparse = false;
    T fresh;
    struct numbers {
        bool first;
    };
    explicit average_rule(const gd_rule &r, bool) : fresh((T)(1 - r.beta1)) {}
    __device__ numbers begin(const gd_update_state *state, const gd_update_count *) const
    {
        return {state->made == 1};
    }
    __device__ void element(T &w, T *, T g, const numbers &u) const
    {
        w = u.first ? g : average_weight(w, g, fresh);
    }
};

// ---- One pass ---------------------------------------------------------------------------------

template <class T>
struct arrays_of {
    T *w, *state[GD_RULE_STATES];
    const T *g;
};

// The pack of elements from `first` on.
template <class RULE, class T, class R>
__device__ inline void update_pack(const arrays_of<T> &a, R *rounded, int64_t n, const RULE &rule,
                                   const typename RULE::numbers &numbers, gd_factor<T> factor,
                                   int64_t first)
{
    constexpr int V = gd_pack_size<T>, S = RULE::states;
    T weight[V], value[S + 1][V] = {}, grad[V];
    gd_load_guarded(weight, a.w, first, n);
#pragma unroll
    for (int i = 0; i < S; i++)
        if (i < RULE::required || a.state[i]) gd_load_guarded(value[i], a.state[i], first, n);
    gd_load_guarded(grad, a.g, first, n);
    if constexpr (RULE::clips) scale_by(grad, factor);
    if constexpr (has_rounded<T, R>) follow(weight, rounded, first, n);
#pragma unroll
    for (int k = 0; k < V; k++) {
        T s[S + 1];
#pragma unroll
        for (int i = 0; i < S; i++) s[i] = value[i][k];
        rule.element(weight[k], s, grad[k], numbers);
#pragma unroll
        for (int i = 0; i < S; i++) value[i][k] = s[i];
    }
#pragma unroll
    for (int i = 0; i < S; i++)
        if (i < RULE::required || a.state[i]) gd_store_guarded(a.state[i], value[i], first, n);
    gd_store_guarded(a.w, weight, first, n);
    if constexpr (has_rounded<T, R>) round_to(rounded, weight, first, n);
}

// Of all elements, or SPARSE of those of touched rows.
template <bool SPARSE, class RULE, class T, class R>
static __global__ void update_kernel(arrays_of<T> a, R *rounded, int64_t n, RULE rule,
                                     const gd_update_state *state, const gd_update_count *count,
                                     gd_touched rows)
{
    constexpr int V = gd_pack_size<T>;
    if (!state->apply) return;
    __shared__ typename RULE::numbers numbers;
    __shared__ gd_factor<T> factor;
    if (threadIdx.x == 0) { // once, since the state's numbers are doubles
        numbers = rule.begin(state, count);
        factor = gd_factor<T>::of(state->factor);
    }
    __syncthreads();
    const auto update = [&](int64_t first) {
        update_pack(a, rounded, n, rule, numbers, factor, first);
    };
    if constexpr (SPARSE) {
        GD_EACH_WORD(word, rows) gd_each_pack_of_word<V>(rows, word, update);
    } else {
        GD_EACH(pack, gd_packs(n, V)) update(pack * V);
    }
}

template <template <class> class RULE, class T>
static void update(const gd_update_arrays *arrays, bool optional, const gd_rule *rule,
                   const gd_update_state *state, gd_context *ctx)
{
    arrays_of<T> a = {(T *)arrays->w, {}, (const T *)arrays->g};
    for (int i = 0; i < GD_RULE_STATES; i++) a.state[i] = (T *)arrays->state[i];
    by_rounded<T>(arrays->rounded, [&](auto *data) {
        using R = std::remove_pointer_t<decltype(data)>;
        auto *kernel = update_kernel<false, RULE<T>, T, R>;
        gd_grid grid = gd_grid_for(arrays->n, threads * gd_pack_size<T>);
        if constexpr (RULE<T>::sparse)
            if (arrays->rows)
                kernel = update_kernel<true, RULE<T>, T, R>, grid = gd_grid_of_words(*arrays->rows);
        gd_launch(ctx, "optimize", grid, kernel, a, data, arrays->n, RULE<T>(*rule, optional),
                  state, arrays->count, arrays->rows ? *arrays->rows : gd_touched());
    });
}

// `optional`: there is the state that the rule may have or not.
template <template <class> class RULE>
static void update_by(const gd_update_arrays *arrays, bool optional, const gd_rule *rule,
                      const gd_update_state *state, gd_context *ctx)
{
    if (arrays->dtype == GD_FLOAT64)
        update<RULE, double>(arrays, optional, rule, state, ctx);
    else
        update<RULE, float>(arrays, optional, rule, state, ctx);
}

extern "C" void gd_optimize_cuda(const gd_update_arrays *arrays, const gd_rule *rule,
                                 const gd_update_state *state, gd_context *ctx)
{
    switch (rule->kind) {
    case GD_RULE_SGD:
        update_by<sgd_rule>(arrays, arrays->state[0], rule, state, ctx);
        break;
    case GD_RULE_ADAMW:
        update_by<adamw_rule>(arrays, true, rule, state, ctx);
        break;
    case GD_RULE_ADAM:
        update_by<adam_rule>(arrays, true, rule, state, ctx);
        break;
    case GD_RULE_RMSPROP:
        update_by<rmsprop_rule>(arrays, arrays->state[2], rule, state, ctx);
        break;
    case GD_RULE_ADAGRAD:
        update_by<adagrad_rule>(arrays, true, rule, state, ctx);
        break;
    case GD_RULE_LION:
        update_by<lion_rule>(arrays, true, rule, state, ctx);
        break;
    case GD_RULE_AVERAGE:
        update_by<average_rule>(arrays, true, rule, state, ctx);
        break;
    case GD_RULE_KINDS:
        break;
    }
}
