"""The transformer of the comparisons of training, in PyTorch: RMSNorm, RoPE, causal attention, SwiGLU,
no biases, untied output, cross-entropy; and a step: forward, backward, clipping to 1 and AdamW."""
import collections
import contextlib

Sizes = collections.namedtuple("Sizes", "vocab dim layers heads ffn context batch dropout")


def adamw(torch, parameters, beta2, **more):
    """The fused AdamW, with weight decay of matrices only, not of the RMSNorm weights."""
    groups = [{"params": [p for p in parameters if (p.ndim >= 2) == matrix],
               "weight_decay": 0.1 * matrix} for matrix in (True, False)]
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, beta2), fused=True, **more)


def rotary(torch, width, context):
    """The cosines and sines of rotary positions, [context, width]."""
    rate = 10000.0 ** (-torch.arange(0, width, 2).float() / width)
    angle = torch.outer(torch.arange(context).float(), rate)
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotate(torch, x, cos, sin):
    """Rotary positions: the two halves of a head are the two axes of a rotation."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def build_model(torch, sizes):
    nn, F, s = torch.nn, torch.nn.functional, sizes
    dim, width, eps = s.dim, s.dim // s.heads, 1e-5

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.ones(dim))
            self.qkv = nn.Linear(dim, 3 * dim, bias=False)
            self.out = nn.Linear(dim, dim, bias=False)
            self.gate_up = nn.Linear(dim, 2 * s.ffn, bias=False)
            self.down = nn.Linear(s.ffn, dim, bias=False)

        def forward(self, x, cos, sin):
            b, t, _ = x.shape
            parts = self.qkv(F.rms_norm(x, (dim,), self.norm1, eps)).chunk(3, dim=2)
            q, k, v = (p.view(b, t, s.heads, width).transpose(1, 2) for p in parts)
            q, k = (rotate(torch, p, cos, sin).to(v.dtype) for p in (q, k))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + F.dropout(self.out(a.transpose(1, 2).reshape(b, t, dim)), s.dropout)
            gate, up = self.gate_up(F.rms_norm(x, (dim,), self.norm2, eps)).chunk(2, dim=-1)
            return x + F.dropout(self.down(F.silu(gate) * up), s.dropout)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(s.vocab, dim)
            self.blocks = nn.ModuleList(Block() for _ in range(s.layers))
            self.norm = nn.Parameter(torch.ones(dim))
            self.output = nn.Linear(dim, s.vocab, bias=False)
            for name, table in zip(("cos", "sin"), rotary(torch, width, s.context)):
                self.register_buffer(name, table)
            for p in self.parameters():
                if p.ndim == 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, tokens, targets):
            x = F.dropout(self.embedding(tokens), s.dropout)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            logits = self.output(F.rms_norm(x, (dim,), self.norm, eps))
            return F.cross_entropy(logits.view(-1, s.vocab), targets.view(-1))

    return Model()


class Trainer:
    """A model with its optimizer; step() queues one training step, of which `loss` is left. `wrap` makes
    of the model what is called, mode "" or torch.compile's compiles that."""

    def __init__(self, torch, sizes, place="cpu", bf16=False, mode=None, beta2=0.95,
                 wrap=lambda model: model, **optimizer):
        torch.manual_seed(1)
        self.torch, self.mode = torch, mode
        self.place = torch.device(place)
        self.model = wrap(build_model(torch, sizes).to(self.place))
        self.parameters = list(self.model.parameters())
        self.call = self.model if mode is None else torch.compile(self.model, mode=mode or None)
        self.precision = lambda: (torch.autocast(self.place.type, dtype=torch.bfloat16) if bf16
                                  else contextlib.nullcontext())
        self.optimizer = adamw(torch, self.parameters, beta2, **optimizer)
        self.tokens, self.targets = torch.randint(sizes.vocab, (2, sizes.batch, sizes.context),
                                                  device=self.place)

    def step(self):
        if self.mode:
            self.torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        with self.precision():
            loss = self.call(self.tokens, self.targets)
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.loss = loss.detach()  # the graph of a step ends with it

    def wait(self):
        if self.place.type == "cuda":
            self.torch.cuda.synchronize()
