#!/usr/bin/env python3
"""Writes the folders here: small Llama models with random weights, as `transformers` saves them,
and the logits that it computes for some tokens.

    pip install torch transformers safetensors
    python3 tests/files/llama/make_fixtures.py
"""

import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).parent

MODELS = {
    "grouped": dict(num_key_value_heads=2),
    "tied": dict(tie_word_embeddings=True, rope_theta=500000.0, rms_norm_eps=1e-6),
    "bfloat16": dict(num_key_value_heads=1, dtype=torch.bfloat16),
    "sharded": dict(num_key_value_heads=2, max_shard_size="5KB"),
}


def main():
    for seed, (name, options) in enumerate(MODELS.items()):
        torch.manual_seed(seed)
        dtype = options.pop("dtype", torch.float32)
        shard = options.pop("max_shard_size", "1GB")
        theta = options.pop("rope_theta", 10000.0)
        shape = dict(
            vocab_size=24, hidden_size=16, intermediate_size=20, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=32,
            rms_norm_eps=1e-5, initializer_range=0.4, bos_token_id=None, eos_token_id=None,
            rope_parameters={"rope_type": "default", "rope_theta": theta},
        )  # fmt: skip
        model = LlamaForCausalLM(LlamaConfig(**(shape | options))).to(dtype)
        for parameter in model.parameters():
            if parameter.ndim == 1:  # norms that are not all ones
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder, max_shard_size=shard)
        (folder / "generation_config.json").unlink(missing_ok=True)
        tokens = torch.randint(0, 24, (3, 11))
        # Read again: .to(bfloat16) above has also rounded the rotary frequencies.
        model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
        with torch.no_grad():
            logits = model(tokens).logits
        save_file(
            {"tokens": tokens.to(torch.int32), "logits": logits.contiguous()},
            HERE / f"{name}.safetensors",
        )


if __name__ == "__main__":
    main()
