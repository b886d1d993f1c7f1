"""The training step of compare_train.py in JAX: forward, backward, clipping and AdamW are one jit,
whose parameters and moments are donated, so that they are updated in place."""

import functools
import os
import time

from harness import steps_in, time_rounds

WARM_STEPS = 12
RATE, DECAY, BETA1, BETA2, EPS, CLIP = 1e-4, 0.1, 0.9, 0.95, 1e-8, 1.0


def import_jax(device, cache):
    """jax, on that device, with its compilations kept in the folder `cache` between runs."""
    os.environ["JAX_PLATFORMS"] = device
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # so that the peak is counted
    import jax

    jax.config.update("jax_compilation_cache_dir", os.path.abspath(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_default_prng_impl", "rbg")  # the faster numbers, for dropout
    return jax


def create(jax, sizes):
    """The parameters; matrices are [out, in] as everywhere here."""
    vocab, dim, layers, _, ffn, *_ = sizes
    keys = iter(jax.random.split(jax.random.key(1), 2 + 4 * layers))
    matrix = lambda out, into: 0.02 * jax.random.normal(next(keys), (out, into))
    ones = lambda: jax.numpy.ones(dim)
    return {
        "embedding": matrix(vocab, dim),
        "blocks": [{
            "norm1": ones(), "norm2": ones(), "qkv": matrix(3 * dim, dim), "out": matrix(dim, dim),
            "gate_up": matrix(2 * ffn, dim), "down": matrix(dim, ffn),
        } for _ in range(layers)],
        "norm": ones(),
        "output": matrix(vocab, dim),
    }


def loss_of(jax, sizes, dtype, attention, params, tokens, targets, key):
    """The mean cross-entropy; products in `dtype`, the rest in float32."""
    jnp = jax.numpy
    _, dim, layers, heads, _, context, _, dropout = sizes
    width = dim // heads
    angle = jnp.outer(jnp.arange(context), 10000.0 ** (-jnp.arange(0, width, 2) / width))
    angle = jnp.concatenate((angle, angle), axis=-1)[:, None]  # [context, 1, width]
    keys = iter(jax.random.split(key, 1 + 2 * layers)) if dropout else None

    def drop(x):
        if not dropout:
            return x
        kept = jax.random.bernoulli(next(keys), 1 - dropout, x.shape)
        return jnp.where(kept, x / (1 - dropout), 0).astype(x.dtype)

    def norm(x, weight):
        x = x.astype(jnp.float32)
        rstd = jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)
        return (x * rstd * weight).astype(dtype)

    def linear(x, weight):
        return jnp.einsum("bti,oi->bto", x, weight.astype(dtype))

    def rotate(x):
        first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
        turned = jnp.concatenate((-second, first), axis=-1)
        return (x * jnp.cos(angle) + turned * jnp.sin(angle)).astype(dtype)

    x = drop(params["embedding"][tokens])
    for block in params["blocks"]:
        h = linear(norm(x, block["norm1"]), block["qkv"])
        q, k, v = (p.reshape(*p.shape[:2], heads, width) for p in jnp.split(h, 3, axis=-1))
        a = jax.nn.dot_product_attention(rotate(q), rotate(k), v, is_causal=True,
                                         implementation=attention)
        x = x + drop(linear(a.reshape(x.shape), block["out"]))
        gate, up = jnp.split(linear(norm(x, block["norm2"]), block["gate_up"]), 2, axis=-1)
        x = x + drop(linear(jax.nn.silu(gate) * up, block["down"]))
    logits = linear(norm(x, params["norm"]), params["output"]).astype(jnp.float32)
    right = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return (jax.nn.logsumexp(logits, axis=-1) - right).mean()


def update(jax, params, moments, count, grads, clip=True):
    """The new parameters and moments: clipping of the norm, then AdamW."""
    jnp, tree = jax.numpy, jax.tree_util
    scale = 1
    if clip:
        norm = jnp.sqrt(sum(jnp.square(g).sum() for g in tree.tree_leaves(grads)))
        scale = jnp.minimum(1, CLIP / (norm + 1e-6))
    bias1, bias2 = 1 - BETA1**count, 1 - BETA2**count

    def one(p, g, moment):
        m = BETA1 * moment[0] + (1 - BETA1) * g * scale
        v = BETA2 * moment[1] + (1 - BETA2) * jnp.square(g * scale)
        kept = p * (1 - RATE * DECAY) if p.ndim >= 2 else p
        return kept - RATE * (m / bias1) / (jnp.sqrt(v / bias2) + EPS), (m, v)

    leaves, shape = tree.tree_flatten(params)
    new = [one(*of) for of in zip(leaves, tree.tree_leaves(grads), moments)]
    return tree.tree_unflatten(shape, [p for p, _ in new]), [moment for _, moment in new]


def no_moments(jax, params):
    """The two moments of each parameter before the first step."""
    return [(jax.numpy.zeros_like(p), jax.numpy.zeros_like(p))
            for p in jax.tree_util.tree_leaves(params)]


class Trainer:
    """step() queues one training step."""

    def __init__(self, jax, sizes, precision, attention):
        jnp = jax.numpy
        vocab, context, batch, dropout = sizes[0], *sizes[5:8]
        # By default a GPU computes products of float32 in TF32.
        jax.config.update("jax_default_matmul_precision",
                          "highest" if precision == "fp32" else "default")
        dtype = jnp.bfloat16 if precision == "bf16" else jnp.float32
        draw = functools.partial(jax.random.randint, shape=(batch, context), minval=0, maxval=vocab)
        self.data = draw(jax.random.key(2)), draw(jax.random.key(3))
        params = create(jax, sizes)
        self.state = params, no_moments(jax, params), jnp.asarray(1.0), jax.random.key(4)

        def step(state, tokens, targets):
            params, moments, count, key = state
            key, now = jax.random.split(key) if dropout else (key, key)
            loss, grads = jax.value_and_grad(
                lambda p: loss_of(jax, sizes, dtype, attention, p, tokens, targets, now))(params)
            params, moments = update(jax, params, moments, count, grads)
            return (params, moments, count + 1, key), loss

        self.jitted = jax.jit(step, donate_argnums=0)

    def step(self):
        self.state, self.loss = self.jitted(self.state, *self.data)


def time_steps(jax, trainer, rounds):
    """The milliseconds of a step, and the last loss."""
    def wait():
        jax.block_until_ready(trainer.state)

    for _ in range(WARM_STEPS):
        trainer.step()
    wait()
    begin = time.perf_counter()
    trainer.step()
    wait()
    steps = steps_in(0.3, time.perf_counter() - begin)
    return {**time_rounds(trainer.step, wait, steps, rounds), "loss": float(trainer.loss)}


def measure(sizes, precision, device, rounds, cache):
    """The figures of the faster of two kinds of attention: cuDNN's, where it can, and XLA's own."""
    jax = import_jax(device, cache)
    best, said = None, {}
    # The peak is the process's. XLA's attention stores the scores and takes more, so comes last.
    for attention in ("cudnn", "xla") if device == "cuda" and precision == "bf16" else ("xla",):
        try:
            trainer = Trainer(jax, sizes, precision, attention)
            figures = time_steps(jax, trainer, rounds)
        except (RuntimeError, ValueError, NotImplementedError) as error:
            said[attention] = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        said[attention] = figures["ms"]
        stats = jax.devices()[0].memory_stats() or {}  # of a CPU there are none
        figures["peak_bytes"] = stats.get("peak_bytes_in_use", 0)
        if best is None or figures["ms"] < best["ms"]:
            best = figures
        del trainer
    if best is None:
        raise RuntimeError(f"none of JAX's kinds of attention works here: {said}")
    return {**best, "attention": said, "jax": jax.__version__}
