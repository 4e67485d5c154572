#!/usr/bin/env python3
"""One framework item a run.  frameworks.py ITEM RESULT.json [NAME ...]

RESULT.json then holds `equal`, names and what a remote run must reproduce exactly, and `drivers`,
the libraries that served as libcuda; or `skipped`, why the item says nothing on this machine.
With names, for items whose results do not depend on each other: those alone, each worked out TRIES
times, and `equal` has the list of all that came out.
Everything is seeded; no file is downloaded. An expression that raises is recorded as that, and its
traceback printed: it must raise remotely, too.
"""

import faulthandler
import hashlib
import importlib
import json
import os
import sys
import traceback

# Item -> module that has a function of that name, which takes a Found.
ITEMS = {
    'torch_eager': 'fw_torch', 'torch_compile': 'fw_torch_graphs', 'cuda_graphs': 'fw_torch_graphs',
    'graphed_callables': 'fw_torch_graphs', 'streams_events': 'fw_torch', 'attention': 'fw_torch',
    'amp_training': 'fw_torch_models', 'optimisers': 'fw_torch_models', 'fft': 'fw_torch',
    'sparse': 'fw_torch', 'linalg': 'fw_torch', 'dataloader': 'fw_torch_models',
    'memory': 'fw_torch_memory', 'memory_expandable': 'fw_torch_memory',
    'memory_async': 'fw_torch_memory', 'two_processes': 'fw_processes',
    'shared_tensors': 'fw_processes', 'nccl_one': 'fw_processes', 'nccl_two': 'fw_processes',
    'gpt2': 'fw_torch_models', 'resnet50': 'fw_torch_models', 'cudnn': 'fw_torch_models',
    'triton': 'fw_triton', 'cupy': 'fw_cupy', 'numba': 'fw_numba', 'jax': 'fw_jax',
    'pynvml': 'fw_processes', 'profiler': 'fw_torch',
    'torch_ops_0': 'fw_torch_ops', 'torch_ops_1': 'fw_torch_ops', 'torch_ops_2': 'fw_torch_ops',
    'torch_ops_3': 'fw_torch_ops', 'numba_driver': 'fw_suites', 'numba_kernels': 'fw_suites',
}
# Parts that items start as processes of their own.
PARTS = {'matmuls': 'fw_processes', 'nccl_rank': 'fw_processes'}

# Items of which some results may be asked for alone: each is seeded by itself.
REPEATABLE = {'torch_ops_0', 'torch_ops_1', 'torch_ops_2', 'torch_ops_3'}
TRIES = 20

ENVIRONMENT = {
    'HF_HUB_OFFLINE': '1', 'TRANSFORMERS_OFFLINE': '1', 'CUBLAS_WORKSPACE_CONFIG': ':4096:8',
    'TORCHINDUCTOR_COMPILE_THREADS': '4', 'XLA_PYTHON_CLIENT_PREALLOCATE': 'false',
    'TOKENIZERS_PARALLELISM': 'false', 'PYTHONHASHSEED': '0',
}
# What an item needs from the environment before its module is imported. PyTorch knows both names.
ALLOCATOR = {'memory_expandable': 'expandable_segments:True',
             'memory_async': 'backend:cudaMallocAsync'}


class Skip(Exception):
    """The item says nothing on this machine; the message says why."""


def plain(value):
    """Bytes of a value that only depend on what it is worth."""
    if hasattr(value, 'detach'):
        import torch
        value = value.detach().cpu().resolve_conj().resolve_neg()
        if value.layout != torch.strided:
            value = value.to_dense()
        if value.is_complex():
            value = torch.view_as_real(value)
        head = f'{value.dtype} {tuple(value.shape)} '.encode()
        # A single element may have any stride, which view() below refuses.
        flat = torch.empty(value.numel(), dtype=value.dtype).copy_(value.reshape(-1))
        return head + flat.view(torch.uint8).numpy().tobytes()
    if hasattr(value, 'copy_to_host'):
        value = value.copy_to_host()
    elif hasattr(value, 'get') and hasattr(value, '__cuda_array_interface__'):
        value = value.get()
    if hasattr(value, '__array__'):
        import numpy
        value = numpy.asarray(value)
        return f'{value.dtype} {value.shape} '.encode() + numpy.ascontiguousarray(value).tobytes()
    raise TypeError(type(value).__name__)


def summary(value):
    """What stands for a value in the result: itself if it is short, else a digest of its bytes."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value if not isinstance(value, float) else repr(value)
    if isinstance(value, dict):
        return {str(key): summary(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [summary(one) for one in value]
    return hashlib.sha256(plain(value)).hexdigest()[:16]


class Found:
    """What an item found, by name. With `names`, of those alone all that came out in TRIES."""

    def __init__(self, names=()):
        self.equal = {}
        self.names = set(names)

    def keep(self, name, make):
        """Keeps what `make` is or returns; what it raises, too."""
        if not self.names:
            self.equal[name] = self.worth(name, make)
        elif name in self.names:
            values = [self.worth(name, make) for _ in range(TRIES)]
            self.equal[name] = [value for i, value in enumerate(values) if value not in values[:i]]

    def worth(self, name, make):
        try:
            return summary(make() if callable(make) else make)
        except Skip:
            raise
        except Exception as error:  # The others are of interest, too.
            print(f'-- {name}:', file=sys.stderr)
            traceback.print_exc()
            return f'raises {type(error).__name__}'


def drivers():
    """The files that this process has as its libcuda."""
    with open('/proc/self/maps', encoding='utf-8', errors='replace') as file:
        paths = {line.split(maxsplit=5)[5].strip() for line in file if len(line.split()) > 5}
    return sorted(path for path in paths if os.path.basename(path).startswith('libcuda.so'))


def run(item, names=()):
    """The result of one item in this process, or of the names in it."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if item in ALLOCATOR:
        os.environ['PYTORCH_ALLOC_CONF'] = ALLOCATOR[item]
        os.environ['PYTORCH_CUDA_ALLOC_CONF'] = ALLOCATOR[item]
    found = Found(names)
    try:
        module = importlib.import_module((ITEMS | PARTS)[item])
        getattr(module, item)(found)
    except Skip as skip:
        return {'skipped': str(skip)}
    except ModuleNotFoundError as error:
        return {'skipped': f'{error.name} is not installed'}
    return {'equal': found.equal, 'drivers': drivers()}


def main():
    if (len(sys.argv) < 3 or sys.argv[1] not in ITEMS | PARTS or
            (sys.argv[3:] and sys.argv[1] not in REPEATABLE)):
        print(__doc__, '\nitems:', ' '.join(ITEMS), file=sys.stderr)
        return 2
    limit = float(os.environ.get('FLYT_CASE_SECONDS', '0'))
    if limit > 5:
        # A hang tells where before the runner ends it.
        faulthandler.dump_traceback_later(limit - 3, exit=False)
    result = run(sys.argv[1], sys.argv[3:])
    with open(sys.argv[2], 'w', encoding='utf-8') as file:
        json.dump(result, file, indent=1)
    print(json.dumps(result))
    faulthandler.cancel_dump_traceback_later()
    return 0


if __name__ == '__main__':
    # Modules that items import find `frameworks` itself, not a second copy.
    sys.modules['frameworks'] = sys.modules['__main__']
    sys.exit(main())
