"""Calls the kernels of include/gradus/kernels.h on PyTorch tensors.

forward() and backward() run the kernels once, on x's device and its current stream, and allocate
what they return through PyTorch. Strided tensors are used in place where possible; a tensor whose
rows are not packed, or whose rows have a different order in memory than x, is copied first.
"""

import struct

import torch

from . import _library as c

DTYPES = {
    torch.float32: c.FLOAT32,
    torch.float64: c.FLOAT64,
    torch.bfloat16: c.BFLOAT16,
    torch.float16: c.FLOAT16,
}

_values = struct.Struct(c.VALUES).pack
_gradients = struct.Struct(c.GRADIENTS).pack


class Problem:
    """A gd_rms_norm_problem for tensors that ops.py has checked."""

    def __init__(self, x, residual, weight, bias, eps, offset, round_before, dtype):
        param = bias if weight is None else weight
        self.base = x.dtype if residual is None else residual.dtype  # of what is normalised
        self.dtype = dtype  # of y
        self.param = self.base if param is None else param.dtype
        self.per_head = param is not None and param.dim() == 2
        self.is_cuda = x.is_cuda
        self.cols = x.shape[-1]
        self.heads = x.shape[-2] if self.per_head else 1
        self.stride = self.heads * self.cols  # between tokens, if contiguous
        self.row_shape = x.shape[:-1]
        self.rstd = torch.float64 if torch.float64 in (self.base, dtype, self.param) \
            else torch.float32
        self.eps, self.offset, self.round_before = eps, offset, round_before

    def prepare(self):
        """Packs the C struct for contiguous tensors."""
        self.packed, self.room = self.pack(self.row_shape.numel(), self.heads)
        return self

    def pack(self, rows, heads):
        """Returns the struct, and the size in bytes of the workspace that a backward needs."""
        packed = struct.pack(
            c.PROBLEM, rows, self.cols, heads, self.per_head, DTYPES[self.base], DTYPES[self.dtype],
            DTYPES[self.param], DTYPES[self.param], self.eps, self.offset, self.round_before)
        return packed, (c.cuda_workspace if self.is_cuda else c.cpu_workspace)(packed)


def _launch(cpu, cuda, x, problem, arguments):
    if x.is_cuda:
        device = x.get_device()
        stream = torch._C._cuda_getCurrentRawStream(device)
        if device == torch._C._cuda_getDevice():
            status = cuda(problem, arguments, stream)
        else:
            with torch.cuda.device(device):
                status = cuda(problem, arguments, stream)
    else:
        status = cpu(problem, arguments, torch.get_num_threads())
    if status:
        raise RuntimeError(
            f"gradus: RMSNorm on {x.device}: {c.status_name(status).decode()}"
            + (", the library was built without CUDA" if status == c.ERROR_UNSUPPORTED else ""))


# ---- Results ------------------------------------------------------------------------------------


def result_like(x, per_head, dtype):
    """An empty tensor for a result: dense, with x's memory order if that keeps rows packed (and,
    with weights per head, the heads of a token adjacent), else contiguous."""
    y = torch.empty_like(x, dtype=dtype)
    if y.is_contiguous():
        return y
    cols = x.shape[-1]
    if (cols > 1 and y.stride(-1) != 1) or (per_head and y.stride(-2) != cols):
        y = torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)
    return y


def rows_like(y, dtype):
    """An empty tensor with one number for each row of y, in y's memory order."""
    if y.is_contiguous():
        return y.new_empty(y.shape[:-1], dtype=dtype)
    return torch.empty_like(y.select(-1, 0), dtype=dtype)


def empty_results(p, x, residual):
    """Empty tensors for y, the sum (None without a residual), and rstd."""
    y = result_like(x, p.per_head, p.dtype)
    return y, None if residual is None else torch.empty_like(y, dtype=p.base), rows_like(y, p.rstd)


def _packed_like(t):
    if t.is_contiguous():
        return torch.empty_like(t)
    return torch.empty_like(t, memory_format=torch.contiguous_format)


def empty_gradients(p, x, weight, bias, wanted):
    """Empty tensors for dx, like x; dbranch, dx in y's dtype; dweight; dbias; None if unwanted."""
    return (
        result_like(x, p.per_head, x.dtype) if wanted[0] else None,
        result_like(x, p.per_head, p.dtype) if wanted[1] else None,
        _packed_like(weight) if wanted[2] else None,
        _packed_like(bias) if wanted[3] else None,
    )


# ---- Strides, if not all tensors are contiguous -------------------------------------------------


def _in_order_of(result, t):
    """t if its rows are packed, else a copy in the memory order of `result`."""
    if t is None or t.shape[-1] <= 1 or t.stride(-1) == 1:
        return t
    if not any(t.stride()):  # one number, expanded, as in the gradient of a sum: copy one row
        return t[(0,) * (t.dim() - 1)].contiguous().expand(t.shape)
    return torch.empty_like(result, dtype=t.dtype).copy_(t)


def _tokens(tensors, per_head):
    """(rows, heads, [stride between tokens]) if, in the order of the first tensor's rows, one
    stride between tokens is enough for each tensor; else None."""
    result = tensors[0]
    cols, last = result.shape[-1], result.dim() - 2
    dims = [d for d in range(last + 1) if result.shape[d] > 1 or (per_head and d == last)]
    dims.sort(key=lambda d: (result.stride(d), d != last), reverse=True)
    merged = []  # (size, strides), the innermost last
    for d in dims:
        size, strides = result.shape[d], [t.stride(d) for t in tensors]
        outer = merged[-1][1] if merged and not (per_head and d == last) else None
        if outer == [size * stride for stride in strides]:
            merged[-1] = (merged[-1][0] * size, strides)
        else:
            merged.append((size, strides))
    packed = [cols] * len(tensors)
    if not per_head and len(merged) < 2:
        return (merged[0][0], 1, merged[0][1]) if merged else (1, 1, packed)
    heads, inner = merged.pop()
    if len(merged) > 1 or (heads > 1 and inner != packed):
        return None
    tokens, strides = merged[0] if merged else (1, [heads * cols] * len(tensors))
    return tokens * heads, heads, strides


def _lay_out(result, tensors, per_head):
    """(rows, heads, tensors, strides) for `result`, made by result_like, and for tensors of its
    shape (or None), which are copied if their strides require it."""
    tensors = [_in_order_of(result, t) for t in tensors]
    found = _tokens([result, *(t for t in tensors if t is not None)], per_head)
    if found is None:
        tensors = [
            t if t is None or t.stride() == result.stride()
            else torch.empty_like(result, dtype=t.dtype).copy_(t)
            for t in tensors
        ]
        found = _tokens([result, *(t for t in tensors if t is not None)], per_head)
    rows, heads, known = found
    known = iter(known)
    return rows, heads, tensors, [next(known), *(0 if t is None else next(known) for t in tensors)]


# ---- The kernels --------------------------------------------------------------------------------


def _pointer(t):
    return 0 if t is None else t.data_ptr()


def forward(p, x, residual, weight, bias):
    """Computes (y, sum, rstd); for their layout see empty_results."""
    if x.is_contiguous() and (residual is None or residual.is_contiguous()):
        y = torch.empty_like(x, dtype=p.dtype)
        total = None if residual is None else torch.empty_like(residual)
        rstd = x.new_empty(p.row_shape, dtype=p.rstd)
        packed, y_stride = p.packed, p.stride
        x_stride = residual_stride = y_stride
    else:
        y, total, rstd = empty_results(p, x, residual)
        rows, heads, (x, residual), strides = _lay_out(y, [x, residual], p.per_head)
        y_stride, x_stride, residual_stride = strides
        packed = p.pack(rows, heads)[0]
    if weight is not None and not weight.is_contiguous():
        weight = weight.contiguous()
    if bias is not None and not bias.is_contiguous():
        bias = bias.contiguous()
    _launch(c.cpu_forward, c.cuda_forward, x, packed, _values(
        y.data_ptr(), y_stride, rstd.data_ptr(), x.data_ptr(), x_stride, _pointer(residual),
        residual_stride, _pointer(total), y_stride, _pointer(weight), _pointer(bias)))
    return y, total, rstd


def backward(p, dy, dsum, x, rstd, weight, bias, wanted):
    """Computes (dx, dbranch, dweight, dbias); for their layout see empty_gradients. x is the
    normalised input: the sum if there was a residual. dbranch is the gradient of what was added to
    the residual."""
    dx, dbranch, dweight, dbias = results = empty_gradients(p, x, weight, bias, wanted)
    if (
        x.is_contiguous()
        and dy.is_contiguous()
        and rstd.is_contiguous()
        and (dsum is None or dsum.is_contiguous())
    ):
        packed, room = p.packed, p.room
        dx_stride = x_stride = dy_stride = dsum_stride = p.stride
    else:
        like = result_like(x, p.per_head, x.dtype)
        rows, heads, (x, dy, dsum), strides = _lay_out(like, [x, dy, dsum], p.per_head)
        dx_stride, x_stride, dy_stride, dsum_stride = strides
        packed, room = p.pack(rows, heads)
        in_order = rows_like(like, rstd.dtype)
        if rstd.stride() != in_order.stride():
            rstd = in_order.copy_(rstd)
    workspace = 0
    if dweight is not None or dbias is not None:
        scratch = x.new_empty(room, dtype=torch.uint8)
        workspace = scratch.data_ptr()
    if weight is not None and not weight.is_contiguous():
        weight = weight.contiguous()
    _launch(c.cpu_backward, c.cuda_backward, x, packed, _gradients(
        _pointer(dx), dx_stride, False, _pointer(dbranch), dx_stride, False, _pointer(dweight),
        _pointer(dbias), False, False, dy.data_ptr(), dy_stride, _pointer(dsum), dsum_stride,
        x.data_ptr(), x_stride, rstd.data_ptr(), _pointer(weight), workspace))
    return results
