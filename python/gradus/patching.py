"""patch(model): computes the RMSNorms of a transformers model with gradus.

Each norm remains the same module object, with its parameters, hooks and name; only its class
changes, and unpatch() restores it. The classes here differ in where each family of models rounds:
xhat is x / sqrt(mean(x^2) + eps), in float32.
"""

import collections

import torch

from . import nn
from ._messages import shown
from .ops import rms_norm


class LlamaLikeRMSNorm(torch.nn.Module):
    """weight * (xhat rounded to x's dtype)"""

    reads = "weight", "variance_epsilon"

    def forward(self, hidden_states):
        dtype = torch.promote_types(hidden_states.dtype, self.weight.dtype)
        return rms_norm(hidden_states, self.weight, eps=self.variance_epsilon,
                        round_before_weight=True, dtype=dtype)

    def extra_repr(self):
        return f"{tuple(self.weight.shape)}, eps={self.variance_epsilon}"


class OlmoLikeRMSNorm(LlamaLikeRMSNorm):
    """(weight * xhat) rounded to x's dtype"""

    def forward(self, hidden_states):
        return rms_norm(hidden_states, self.weight, eps=self.variance_epsilon)


class GemmaLikeRMSNorm(torch.nn.Module):
    """((1 + weight) * xhat) rounded to x's dtype"""

    reads = "weight", "eps"

    def forward(self, x):
        return rms_norm(x, self.weight, eps=self.eps, offset=1.0)

    def extra_repr(self):
        return f"{tuple(self.weight.shape)}, eps={self.eps}"


_OF_TRANSFORMERS = {
    "LlamaRMSNorm": LlamaLikeRMSNorm,
    "MistralRMSNorm": LlamaLikeRMSNorm,
    "Qwen2RMSNorm": LlamaLikeRMSNorm,
    "Qwen3RMSNorm": LlamaLikeRMSNorm,
    "Phi3RMSNorm": LlamaLikeRMSNorm,
    "Olmo2RMSNorm": OlmoLikeRMSNorm,
    "GemmaRMSNorm": GemmaLikeRMSNorm,
    "Gemma2RMSNorm": GemmaLikeRMSNorm,
    "Gemma3RMSNorm": GemmaLikeRMSNorm,
}


def _replacement(kind):
    if kind is torch.nn.RMSNorm:
        return nn.RMSNorm
    if kind.__module__.partition(".")[0] == "transformers":
        return _OF_TRANSFORMERS.get(kind.__name__)
    return None


class Patched(dict):
    """The names of the replaced modules, with their former class names. `left` has the names of
    norms that were not replaced, with the reason. str() gives one line."""

    def __init__(self, done="replaced"):
        super().__init__()
        self.left = {}
        self.done = done

    def __str__(self):
        kinds = collections.Counter(self.values())
        text = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        text = f"{len(self)} norm{'s' * (len(self) != 1)} {self.done}" + (f": {text}" if text else "")
        reasons = collections.Counter(self.left.values())
        left = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        return text + (f"; left as they are: {left}" if left else "")


def _modules(who, model):
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"{who}: model is {shown(model)}, wanted a torch.nn.Module")
    return model.named_modules()


def patch(model: torch.nn.Module) -> Patched:
    """Makes a model compute its RMSNorms with gradus, in place; returns what was replaced.

    Supports torch.nn.RMSNorm and the norms of transformers' Llama, Mistral, Qwen2, Qwen3 (q_norm
    and k_norm too), Gemma, Gemma 2, Gemma 3, Phi-3 and OLMo-2. Call it before the model is compiled
    or wrapped (DDP, FSDP), either before or after its weights are loaded.
    """
    patched = Patched()
    for name, module in _modules("patch", model):
        kind = type(module)
        if "RMSNorm" not in kind.__name__ or kind.__module__.partition(".")[0] == "gradus":
            continue
        replacement = _replacement(kind)
        if replacement is None:
            patched.left[name] = f"{kind.__name__} (unknown)"
        elif "forward" in vars(module):
            patched.left[name] = f"{kind.__name__} (forward is overridden)"
        elif not all(hasattr(module, key) for key in getattr(replacement, "reads", ())):
            patched.left[name] = f"{kind.__name__} (without {' or '.join(replacement.reads)})"
        else:
            module._gradus_original = kind
            module.__class__ = replacement
            patched[name] = kind.__name__
    return patched


def unpatch(model: torch.nn.Module) -> Patched:
    """Undoes patch(); returns what it restored."""
    patched = Patched("restored")
    for name, module in _modules("unpatch", model):
        kind = vars(module).get("_gradus_original")
        if kind is not None:
            del module._gradus_original
            module.__class__ = kind
            patched[name] = kind.__name__
    return patched
