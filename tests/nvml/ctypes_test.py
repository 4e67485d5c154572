#!/usr/bin/env python3
"""Asks NVML as Python programs do, through ctypes, inside `flyt run`: PREFIX [flyt smi's too].

No package is needed: this is what pynvml and PyTorch call, in their order.
"""

import ctypes
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, 'tools'))
from flyt_process import Server  # noqa: E402


class Memory(ctypes.Structure):
    _fields_ = [('version', ctypes.c_uint), ('total', ctypes.c_ulonglong),
                ('reserved', ctypes.c_ulonglong), ('free', ctypes.c_ulonglong),
                ('used', ctypes.c_ulonglong)]


class Utilization(ctypes.Structure):
    _fields_ = [('gpu', ctypes.c_uint), ('memory', ctypes.c_uint)]


class Process(ctypes.Structure):
    _fields_ = [('pid', ctypes.c_uint), ('used', ctypes.c_ulonglong),
                ('instance', ctypes.c_uint), ('compute_instance', ctypes.c_uint)]


class Nvml:
    """Functions of the library that the loader finds; an error is an exception with its text."""

    def __init__(self):
        self.library = ctypes.CDLL('libnvidia-ml.so.1')
        self.library.nvmlErrorString.restype = ctypes.c_char_p

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            result = function(*arguments)
            if result != 0:
                raise RuntimeError(f'{name}: {self.library.nvmlErrorString(result).decode()}')
        return call

    def text(self, name, *arguments):
        buffer = ctypes.create_string_buffer(96)
        getattr(self, name)(*arguments, buffer, 96)
        return buffer.value.decode()


def ask():
    """What an ordinary monitor wants to know, as a dictionary."""
    nvml = Nvml()
    nvml.nvmlInit_v2()
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    gpus = []
    for index in range(count.value):
        device = ctypes.c_void_p()
        nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
        memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
        nvml.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(memory))
        assert memory.total == memory.used + memory.reserved + memory.free
        use = Utilization()
        nvml.nvmlDeviceGetUtilizationRates(device, ctypes.byref(use))
        room = ctypes.c_uint(8)
        processes = (Process * 8)()
        nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(room), processes)
        assert use.gpu <= 100
        gpus.append({'name': nvml.text('nvmlDeviceGetName', device),
                     'uuid': nvml.text('nvmlDeviceGetUUID', device),
                     'total': memory.total, 'used': memory.used,
                     'pids': [processes[i].pid for i in range(room.value)]})
    driver = nvml.text('nvmlSystemGetDriverVersion')
    nvml.nvmlShutdown()
    return {'driver': driver, 'gpus': gpus}


def load_cuda():
    """A context of this process, made through the other library; its number."""
    cuda = ctypes.CDLL('libcuda.so.1')
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    return os.getpid()


def inside():
    """What the child of `flyt run` does."""
    before = ask()
    assert before['gpus'] and before['gpus'][0]['pids'] == []
    pid = load_cuda()
    after = ask()
    assert after['gpus'][0]['pids'] == [pid], after
    print(json.dumps(after))


def main(prefix):
    with Server(prefix, 'soft') as server:
        flyt = os.path.join(prefix, 'bin', 'flyt')
        done = subprocess.run([flyt, 'run', '--server', server.url, '--', sys.executable,
                               os.path.abspath(__file__), '--inside'],
                              capture_output=True, text=True, timeout=250, check=False)
        if done.returncode != 0:
            print(done.stdout, done.stderr, server.log())
            return 1
        seen = json.loads(done.stdout)
        smi = json.loads(subprocess.run([flyt, 'smi', '--server', server.url, '--json'], text=True,
                                        capture_output=True, timeout=250, check=True).stdout)
        table = subprocess.run([flyt, 'smi', '--server', server.url], text=True,
                               capture_output=True, timeout=250, check=True).stdout
        print(table)
        assert smi['driver'] == seen['driver']
        assert [gpu['uuid'] for gpu in smi['gpus']] == [gpu['uuid'] for gpu in seen['gpus']]
        assert smi['gpus'][0]['name'] in table
    return 0


if __name__ == '__main__':
    if sys.argv[1] == '--inside':
        inside()
    else:
        sys.exit(main(sys.argv[1]))
