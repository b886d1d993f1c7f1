"""patch(): small random models of each family compute the same as before."""

import copy
import io

import pytest
import torch

import gradus

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SMALL = {
    "vocab_size": 61, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}
# family: the number of norms, with 2 layers
FAMILIES = {
    "Llama": ("LlamaConfig", {}, {"LlamaRMSNorm": 5}),
    "Mistral": ("MistralConfig", {}, {"MistralRMSNorm": 5}),
    "Qwen2": ("Qwen2Config", {}, {"Qwen2RMSNorm": 5}),
    "Qwen3": ("Qwen3Config", {"head_dim": 12}, {"Qwen3RMSNorm": 9}),
    "Phi3": ("Phi3Config", {}, {"Phi3RMSNorm": 5}),
    "Gemma": ("GemmaConfig", {"head_dim": 12}, {"GemmaRMSNorm": 5}),
    "Gemma2": ("Gemma2Config", {"head_dim": 12}, {"Gemma2RMSNorm": 9}),
    "Gemma3": ("Gemma3TextConfig", {"head_dim": 12}, {"Gemma3RMSNorm": 13}),
    "Olmo2": ("Olmo2Config", {}, {"Olmo2RMSNorm": 9}),
}


def make(family, device, dtype=torch.float32):
    """A random model whose norms have random weights."""
    config, more, _ = FAMILIES[family]
    config = getattr(transformers, config)(**SMALL, **more)
    config._attn_implementation = "eager"
    torch.manual_seed(3)
    model = getattr(transformers, family + "ForCausalLM")(config).eval()
    for name, p in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(p, mean=p.mean().item(), std=0.3)
        else:
            torch.nn.init.normal_(p, std=0.15)
    return model.to(device=device, dtype=dtype)


def run(model):
    """The logits, and the gradients of a loss."""
    device = next(model.parameters()).device
    tokens = torch.arange(40, device=device).reshape(2, 20) * 7 % 61
    model.zero_grad()
    out = model(input_ids=tokens, labels=tokens, use_cache=False)
    out.loss.backward()
    return out.logits.detach(), {n: p.grad.clone() for n, p in model.named_parameters()}


def distance(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-30)).item()


@pytest.mark.parametrize("family", FAMILIES)
def test_patched_model_computes_the_same(device, family):
    model = make(family, device)
    logits, gradients = run(model)
    patched = gradus.patch(model)
    counts = FAMILIES[family][2]
    assert {kind: list(patched.values()).count(kind) for kind in patched.values()} == counts
    assert str(patched) == "; ".join(
        f"{count} norm{'s' * (count != 1)} replaced: {count} {kind}" for kind, count in counts.items())
    new_logits, new_gradients = run(model)
    assert not torch.equal(logits, new_logits)  # equal bits would mean that nothing was replaced
    assert distance(new_logits, logits) < 3e-6
    for name, g in gradients.items():
        assert distance(new_gradients[name], g) < 2e-5, name
    assert gradus.unpatch(model) == patched
    assert torch.equal(run(model)[0], logits)
    assert "gradus" not in repr([type(m) for m in model.modules()])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_patched_model_in_16_bits(device, family, dtype):
    """The error against the float32 model is at most 1.25 times that of the original."""
    exact, exact_gradients = run(make(family, device, dtype).float())
    model = make(family, device, dtype)
    before, gradients_before = run(model)
    gradus.patch(model)
    after, gradients_after = run(model)
    assert after.dtype == before.dtype
    assert distance(after, exact) < 1.25 * distance(before, exact)
    far = lambda g: sum(distance(g[n], e) for n, e in exact_gradients.items())
    assert far(gradients_after) < 1.25 * far(gradients_before)


@pytest.mark.parametrize("family", ["Llama", "Gemma3"])
def test_each_norm_rounds_as_the_original_does(device, family):
    model = make(family, device, torch.bfloat16)
    theirs = model.model.norm
    ours = copy.deepcopy(theirs)
    gradus.patch(torch.nn.ModuleList([ours]))
    x = torch.randn(200, 48, device=device, dtype=torch.bfloat16)
    assert (ours(x) != theirs(x)).float().mean() < 0.005
    # and mixed: 16-bit activations, float32 weights
    theirs, ours = theirs.float(), ours.float()
    assert ours(x).dtype == theirs(x).dtype
    assert distance(ours(x), theirs(x)) < 4e-3


def test_patched_model_copies_and_pickles(device):
    model = make("Llama", device)
    gradus.patch(model)
    logits = run(model)[0]
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert torch.equal(run(other)[0], logits)
        assert len(gradus.unpatch(other)) == 5
    assert set(model.state_dict()) == set(make("Llama", device).state_dict())


def test_patched_model_compiles(device):
    model = make("Qwen3", device)
    logits = run(model)[0]
    gradus.patch(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    tokens = torch.arange(40, device=device).reshape(2, 20) * 7 % 61
    got = compiled(input_ids=tokens, use_cache=False).logits
    assert distance(got, logits) < 1e-5


def test_gradient_checkpointing_of_transformers(device):
    model = make("Llama", device)
    gradus.patch(model)
    _, want = run(model)
    model.gradient_checkpointing_enable()
    model.train()
    _, got = run(model)
    assert all(distance(got[n], g) < 1e-5 for n, g in want.items())


def test_what_is_left_is_said():
    class OddRMSNorm(torch.nn.Module):
        pass

    own = torch.nn.RMSNorm(8)
    own.forward = lambda x: x
    model = torch.nn.ModuleDict({"a": torch.nn.RMSNorm(8), "b": OddRMSNorm(), "c": own})
    patched = gradus.patch(model)
    assert patched == {"a": "RMSNorm"} and type(model["a"]) is gradus.nn.RMSNorm
    assert str(patched) == (
        "1 norm replaced: 1 RMSNorm; left as they are: 1 OddRMSNorm (unknown), "
        "1 RMSNorm (forward is overridden)"
    )
    assert str(gradus.patch(torch.nn.Linear(2, 2))) == "0 norms replaced"
    gradus.unpatch(model)
    assert type(model["a"]) is torch.nn.RMSNorm
    for call in (gradus.patch, gradus.unpatch):
        for wrong in (None, [own], "m", torch.nn.RMSNorm):
            with pytest.raises(ValueError, match="wanted a torch.nn.Module"):
                call(wrong)
    norm = transformers.models.llama.modeling_llama.LlamaRMSNorm(8)
    del norm.variance_epsilon
    assert gradus.patch(norm).left == {"": "LlamaRMSNorm (without weight or variance_epsilon)"}
