"""Compiles CUDA programs with nvcc, where it is installed."""

import glob
import os
import re
import shutil

_FLAGS = re.compile(r'// nvcc: (.*)')


def find_nvcc():
    """Its path, or None."""
    found = shutil.which('nvcc')
    installed = sorted(glob.glob('/usr/local/cuda*/bin/nvcc'))
    return found or (installed[-1] if installed else None)


def nvcc_command(nvcc, source, cudart, program):
    """The command that makes a program of a .cu file, with the flags that its first line names."""
    with open(source, encoding='utf-8') as file:
        flags = _FLAGS.match(file.readline())
    return [nvcc, '-O2', '-std=c++17', *(flags[1].split() if flags else ()), '-cudart', cudart,
            source, '-o', program]


def runtime_folder(nvcc):
    """Where the shared libraries of the toolkit are."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))), 'lib64')
