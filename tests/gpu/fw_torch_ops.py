"""Framework items: every operation that PyTorch's own tests know, forward and backward.

PyTorch ships the table its tests are made from: its operations, the types each takes on a GPU, and
sample arguments. One result is one operation with one type. The table is shared out among several
items, so that they run at once.
"""

import hashlib
import itertools
import sys
import types
import unittest
import warnings

import torch

from frameworks import Skip, plain
from fw_torch import DEVICE

SHARES = 4
# Arguments tried for each operation: of its first type, and of each other one.
SAMPLES_FIRST = 5
SAMPLES_OTHERS = 2
TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.int64,
         torch.uint8, torch.bool)


def table():
    """The operations, in one order everywhere."""
    # Imported by the tables for test cases that nobody runs here; often not installed.
    if 'expecttest' not in sys.modules:
        try:
            import expecttest  # noqa: F401
        except ModuleNotFoundError:
            stand_in = types.ModuleType('expecttest')
            stand_in.TestCase, stand_in.ACCEPT = unittest.TestCase, False
            sys.modules['expecttest'] = stand_in
    arguments, sys.argv = sys.argv, sys.argv[:1]  # They parse them when imported.
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        raise Skip(f'this PyTorch has no table of operations: {error}') from error
    finally:
        sys.argv = arguments
    return op_db


def tensors(value):
    """The tensors in what an operation returned."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors(one)


def put(digest, value):
    for tensor in tensors(value):
        digest.update(plain(tensor))
    if not isinstance(value, (torch.Tensor, dict, list, tuple)):
        digest.update(repr(value).encode() if isinstance(value, (bool, int, float, complex, str))
                      else type(value).__name__.encode())


def put_gradients(digest, sample, result):
    """Gradients of the sum of what came out, for whatever went in and wants them."""
    wanted = [tensor for tensor in tensors([sample.input, list(sample.args), dict(sample.kwargs)])
              if tensor.requires_grad]
    roots = [tensor for tensor in tensors(result) if tensor.requires_grad]
    if not wanted or not roots:
        return
    total = sum((root.abs() if root.is_complex() else root).double().sum() for root in roots)
    put(digest, torch.autograd.grad(total, wanted, allow_unused=True))


def one(operation, dtype, samples):
    """Digest of results and gradients for the first few sample arguments."""
    torch.manual_seed(11)
    digest = hashlib.sha256()
    gradients = operation.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    made = operation.sample_inputs(DEVICE, dtype, requires_grad=gradients)
    for sample in itertools.islice(made, samples):
        try:
            result = operation(sample.input, *sample.args, **sample.kwargs)
            put(digest, result)
            if gradients:
                put_gradients(digest, sample, result)
        except Exception as error:  # Must be the same remotely, too.
            digest.update(type(error).__name__.encode())
    return digest.hexdigest()[:16]


def share(found, number):
    warnings.simplefilter('ignore')
    torch.use_deterministic_algorithms(True, warn_only=True)
    for operation in table()[number::SHARES]:
        # What is read there was never written.
        if 'empty' in operation.name:
            continue
        supported = operation.supported_dtypes(torch.device(DEVICE).type)
        chosen = [dtype for dtype in TYPES if dtype in supported]
        for dtype, samples in zip(chosen, [SAMPLES_FIRST] + [SAMPLES_OTHERS] * len(TYPES)):
            name = f'{operation.name} {operation.variant_test_name}'.strip()
            found.keep(f'{name} {str(dtype)[6:]}',
                       lambda o=operation, d=dtype, s=samples: one(o, d, s))


def torch_ops_0(found):
    share(found, 0)


def torch_ops_1(found):
    share(found, 1)


def torch_ops_2(found):
    share(found, 2)


def torch_ops_3(found):
    share(found, 3)
