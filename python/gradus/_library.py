"""The C library, called through ctypes. For its functions see the headers, include/gradus/*.h.

The library is installed beside this file; GRADUS_LIBRARY selects another one, such as
build/lib/libgradus.so.
"""

import ctypes
import os
import pathlib
import struct
from ctypes import CFUNCTYPE, POINTER, c_bool, c_char, c_char_p, c_double, c_int, c_int64
from ctypes import c_size_t, c_uint32, c_uint64, c_void_p


def _load():
    path = os.environ.get("GRADUS_LIBRARY") or pathlib.Path(__file__).with_name("libgradus.so")
    try:
        return ctypes.CDLL(os.fspath(path))
    except OSError as error:
        raise ImportError(
            f"gradus: the C library could not be loaded: {error}. `pip install ./python` builds "
            "it; GRADUS_LIBRARY names one that is elsewhere"
        ) from None


lib = _load()


def _declare(name, result, *arguments):
    function = getattr(lib, name)
    function.restype = result
    function.argtypes = arguments
    return function


version = _declare("gd_version", c_char_p)().decode()

# gd_dtype
FLOAT32, FLOAT64, BFLOAT16, FLOAT16 = range(4)
# gd_status
OK, ERROR_ARGUMENT, ERROR_STATE, ERROR_MEMORY, ERROR_DEVICE, ERROR_UNSUPPORTED, ERROR_IO = range(7)
status_name = _declare("gd_status_name", c_char_p, c_int)

# ---- kernels.h: the structs are passed as bytes packed by struct.pack ---------------------------

cpu_forward = _declare("gd_cpu_rms_norm_forward", c_int, c_char_p, c_char_p, c_int)
cpu_backward = _declare("gd_cpu_rms_norm_backward", c_int, c_char_p, c_char_p, c_int)
cpu_workspace = _declare("gd_cpu_rms_norm_workspace", c_size_t, c_char_p)
cuda_forward = _declare("gd_cuda_rms_norm_forward", c_int, c_char_p, c_char_p, c_void_p)
cuda_backward = _declare("gd_cuda_rms_norm_backward", c_int, c_char_p, c_char_p, c_void_p)
cuda_workspace = _declare("gd_cuda_rms_norm_workspace", c_size_t, c_char_p)
_cuda_code = _declare("gd_cuda_code", c_int, c_int, c_char_p, c_size_t)
NO_CODE, PTX, MACHINE_CODE = range(3)


def cuda_code(capability):
    """What code the library has for a GPU, (8, 9) for 8.9: NO_CODE, PTX or MACHINE_CODE; and for
    which GPUs it has code, as text."""
    text = ctypes.create_string_buffer(128)
    kind = _cuda_code(10 * capability[0] + capability[1], text, len(text))
    return kind, text.value.decode()


# gd_rms_norm_problem, gd_rms_norm_values, gd_rms_norm_gradients
PROBLEM = "@qqq?iiiidd?7x"
VALUES = "@PqPPqPqPqPP"
GRADIENTS = "@Pq?Pq?PP??PqPqPqPPP"


def rms_norm_args(eps, offset):
    """gd_rms_norm_args for the records of rms_norm and add_rms_norm."""
    return struct.pack("@ddq", eps, offset, False)

# ---- autograd.h and tensor.h: contexts, tensors, and records of ops -----------------------------

CONTEXT = TENSOR = c_void_p


class Spec(ctypes.Structure):
    _fields_ = [("dtype", c_int), ("ndim", c_int), ("shape", c_int64 * 8)]


class Shapes(ctypes.Structure):
    _fields_ = [("output", POINTER(Spec)), ("save", POINTER(Spec)), ("random_words", c_uint64)]


class Call(ctypes.Structure):
    _fields_ = [
        ("context", c_void_p), ("op", c_void_p), ("args", c_void_p), ("dtype", c_int),
        ("kernel_dtype", c_int), ("threads", c_int), ("inputs", c_int), ("outputs", c_int),
        ("saves", c_int), ("input", POINTER(c_void_p)), ("output", POINTER(c_void_p)),
        ("save", POINTER(c_void_p)), ("repeated", c_bool), ("doutput", POINTER(c_void_p)),
        ("dinput", POINTER(c_void_p)),
        ("accumulate", POINTER(c_bool)), ("seed", c_uint64), ("random_offset", c_uint64),
        ("random_base", c_void_p), ("part_of", c_void_p),
    ]


SHAPE_RULE = CFUNCTYPE(c_int, POINTER(Call), POINTER(Shapes))
KERNEL = CFUNCTYPE(c_int, POINTER(Call))


class Op(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p), ("formula", c_char_p), ("signature", c_char_p), ("inputs", c_int), ("input_names", c_char_p * 6),
        ("optional_inputs", c_uint32), ("outputs", c_int), ("saves", c_int),
        ("args_size", c_size_t), ("random", c_bool), ("backward_reads_inputs", c_uint32),
        ("backward_reads_outputs", c_uint32), ("updates_inputs", c_uint32),
        ("ranges", c_void_p), ("shape", SHAPE_RULE), ("forward", KERNEL * 2), ("backward", KERNEL * 2),
        ("cases", c_void_p), ("case_count", c_int),
        ("definition", c_void_p), ("kernels", c_void_p), ("derivative", c_void_p),
        ("dinput_over_doutput", c_uint32), ("dinput_over_input", c_uint32),
        ("dinput_float32", c_uint32), ("dinput_rows", c_uint32), ("strided", c_bool),
        ("mixed", c_uint32), ("view", c_void_p), ("same_bits", c_bool), ("plain_args", c_bool),
        ("zero_gradient", c_bool),
        ("constant", c_bool),
    ]


context_create = _declare("gd_context_create", CONTEXT, c_void_p)
context_free = _declare("gd_context_free", None, CONTEXT)
error = _declare("gd_error", c_char_p, CONTEXT)
call_fail = _declare("gd_call_fail", c_int, POINTER(Call), c_int, c_char_p, c_char_p)
find_op = _declare("gd_find_op", POINTER(Op), CONTEXT, c_char_p)
# gd_apply as a gd_function whose `user` is the record. As no Python runs in it, an interrupt cannot
# end it without a result, which would then be any address.
apply = CFUNCTYPE(TENSOR, c_void_p, POINTER(TENSOR), c_int, c_void_p)(
    ("gd_apply", lib), ((1, "op"), (1, "inputs"), (1, "count"), (1, "args", None)))
tensor_wrap = _declare("gd_tensor_wrap", TENSOR, CONTEXT, c_int, c_int, POINTER(c_int64), c_void_p)
tensor_data = _declare("gd_tensor_data", c_void_p, TENSOR)
tensor_set_name = _declare("gd_tensor_set_name", c_int, TENSOR, c_char_p)
tensor_set_requires_grad = _declare("gd_tensor_set_requires_grad", c_int, TENSOR, c_bool)


def wrap(context, dtype, shape, data):
    """A tensor on the memory at `data`. The context frees the tensor, not the memory."""
    return tensor_wrap(context, dtype, len(shape), (c_int64 * len(shape))(*shape), data)


def complaint(op, tensors, args):
    """Checks inputs, given as (gd_dtype, shape) or None, and the bytes of the argument struct by
    the op's record. Returns its error message, or None. Nothing is computed."""
    context = context_create(None)
    record = find_op(None, op.encode()).contents
    fits = []

    def shape(call, shapes):  # which is called last: signature and ranges come before it
        if record.shape(call, shapes) == OK:
            fits.append(True)
        return call_fail(call, ERROR_STATE, b"%s", b"the inputs fit")

    check = Op.from_buffer_copy(record)
    check.shape, check.constant = SHAPE_RULE(shape), False
    try:
        somewhere = ctypes.create_string_buffer(64)  # never read: shape rules use shapes only
        inputs = (TENSOR * len(tensors))(
            *(t and wrap(context, *t, (ctypes.addressof(somewhere) + 15) & -16) for t in tensors)
        )
        apply(ctypes.addressof(check), inputs, len(inputs), ctypes.create_string_buffer(args))
        sentence = error(context).decode()
        return None if fits else sentence
    finally:
        context_free(context)

# ---- gradcheck.h --------------------------------------------------------------------------------


PASS, FAIL = range(2)  # gd_verdict


class Options(ctypes.Structure):
    _fields_ = [
        ("dtype", POINTER(c_int)), ("seed", c_uint64), ("step", c_double), ("rtol", c_double),
        ("atol", c_double), ("max_elements", c_int64), ("directions", c_int), ("cotangents", c_int),
        ("order", c_int), ("only_numbers", c_bool), ("only_input", c_char_p), ("only_element", c_int64),
    ]


class Report(ctypes.Structure):
    _fields_ = [
        ("op", c_char * 64), ("name", c_char * 64), ("verdict", c_int), ("device", c_int),
        ("dtype", c_int), ("order", c_int), ("seed", c_uint64), ("step", c_double),
        ("rtol", c_double), ("atol", c_double), ("step_given", c_bool), ("inputs", c_int), ("input", c_void_p),
        ("message", c_char * 512),
    ]


FUNCTION = CFUNCTYPE(TENSOR, c_void_p, POINTER(TENSOR), c_int)
gradcheck_function = _declare(
    "gd_gradcheck_function", c_int, CONTEXT, c_char_p, FUNCTION, c_void_p, POINTER(TENSOR), c_int,
    POINTER(Options), POINTER(Report))
_print = _declare("gd_gradcheck_print", c_int, POINTER(Report), c_void_p, c_bool)
_print_json = _declare("gd_gradcheck_print_json", c_int, POINTER(Report), c_void_p)
gradcheck_report_free = _declare("gd_gradcheck_report_free", None, POINTER(Report))


def _printed(write):
    """The text that a function prints to a FILE."""
    libc = ctypes.CDLL(None)
    libc.open_memstream.restype = c_void_p
    libc.free.argtypes = libc.fclose.argtypes = (c_void_p,)
    text, size = c_void_p(), c_size_t()
    file = libc.open_memstream(ctypes.byref(text), ctypes.byref(size))
    if not file:
        raise MemoryError("gradus: out of memory: a report")
    write(file)
    libc.fclose(file)
    try:
        return ctypes.string_at(text.value, size.value).decode(errors="replace")
    finally:
        libc.free(text)


def report_texts(report):
    """A report as short text, as full text, and as JSON."""
    return (_printed(lambda file: _print(report, file, False)),
            _printed(lambda file: _print(report, file, True)),
            _printed(lambda file: _print_json(report, file)))
