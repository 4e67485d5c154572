"""A CUDA program as any user has one: N rounds of fill and read, or fewer if it is enough."""
import ctypes
import os
import sys
import time

cuda = ctypes.CDLL('libcuda.so.1')


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result != 0:
        sys.exit(f'{name}: {result}')


device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
call('cuInit', 0)
call('cuDeviceGet', ctypes.byref(device), 0)
call('cuDevicePrimaryCtxRetain', ctypes.byref(context), device)
call('cuCtxSetCurrent', context)
call('cuMemAlloc_v2', ctypes.byref(memory), 1 << 20)
print('begun', flush=True)
for number in range(int(sys.argv[1])):
    call('cuMemsetD32_v2', memory, number, 1 << 18)
    read = (ctypes.c_uint32 * 4)()
    call('cuMemcpyDtoH_v2', read, memory, 16)
    if list(read) != [number] * 4:
        sys.exit(f'wrong in round {number}: {list(read)}')
    if os.path.exists('/opt/trial/enough'):
        break
    time.sleep(0.1)
print('right', flush=True)
