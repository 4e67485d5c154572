#!/usr/bin/env python3
"""What NVML says of the GPUs that does not change from one moment to the next, a line each.

Natively and remotely the lines must be the same; pynvml is used where it is installed.
"""

import ctypes

# Functions with one unsigned result, behind up to two arguments.
NUMBERS = [('nvmlDeviceGetMaxClockInfo', (1,)), ('nvmlDeviceGetMaxClockInfo', (2,)),
           ('nvmlDeviceGetPowerManagementDefaultLimit', ()),
           ('nvmlDeviceGetEnforcedPowerLimit', ()),
           ('nvmlDeviceGetMaxPcieLinkGeneration', ()), ('nvmlDeviceGetMaxPcieLinkWidth', ()),
           ('nvmlDeviceGetNumGpuCores', ()), ('nvmlDeviceGetMemoryBusWidth', ()),
           ('nvmlDeviceGetTemperatureThreshold', (0,)), ('nvmlDeviceGetComputeMode', ()),
           ('nvmlDeviceGetArchitecture', ()), ('nvmlDeviceGetPersistenceMode', ())]
# Those that change: whether they are answered is compared, not what.
MEASURED = [('nvmlDeviceGetTemperature', (0,)), ('nvmlDeviceGetPowerUsage', ()),
            ('nvmlDeviceGetClockInfo', (1,)), ('nvmlDeviceGetPerformanceState', ())]
TEXTS = ['nvmlDeviceGetName', 'nvmlDeviceGetUUID', 'nvmlDeviceGetSerial',
         'nvmlDeviceGetVbiosVersion', 'nvmlDeviceGetBoardPartNumber']


class Pci(ctypes.Structure):
    _fields_ = [('legacy', ctypes.c_char * 16), ('domain', ctypes.c_uint), ('bus', ctypes.c_uint),
                ('device', ctypes.c_uint), ('id', ctypes.c_uint), ('subsystem', ctypes.c_uint),
                ('text', ctypes.c_char * 32)]


def text(nvml, name, *arguments):
    buffer = ctypes.create_string_buffer(96)
    result = getattr(nvml, name)(*arguments, buffer, 96)
    return buffer.value.decode() if result == 0 else f'error {result}'


def number(nvml, name, device, arguments):
    value = ctypes.c_uint()
    result = getattr(nvml, name)(device, *arguments, ctypes.byref(value))
    return result, value.value


def show(nvml, index):
    device = ctypes.c_void_p()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0
    for name in TEXTS:
        print(index, name, text(nvml, name, device))
    pci = Pci()
    print(index, 'pci', nvml.nvmlDeviceGetPciInfo_v3(device, ctypes.byref(pci)), pci.text.decode(),
          hex(pci.id), hex(pci.subsystem))
    memory = (ctypes.c_ulonglong * 3)()
    print(index, 'memory total', nvml.nvmlDeviceGetMemoryInfo(device, memory), memory[0])
    for name, arguments in NUMBERS:
        print(index, name, *arguments, *number(nvml, name, device, arguments))
    for name, arguments in MEASURED:
        print(index, name, *arguments, 'result', number(nvml, name, device, arguments)[0])


def with_pynvml():
    try:
        import pynvml
    except ImportError:
        return
    pynvml.nvmlInit()
    for index in range(pynvml.nvmlDeviceGetCount()):
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        print('pynvml', index, pynvml.nvmlDeviceGetName(device), pynvml.nvmlDeviceGetUUID(device),
              pynvml.nvmlDeviceGetMemoryInfo(device).total)


def main():
    nvml = ctypes.CDLL('libnvidia-ml.so.1')
    assert nvml.nvmlInit_v2() == 0
    count = ctypes.c_uint()
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
    print('driver', text(nvml, 'nvmlSystemGetDriverVersion'))
    print('nvml', text(nvml, 'nvmlSystemGetNVMLVersion'))
    for index in range(count.value):
        show(nvml, index)
    with_pynvml()


if __name__ == '__main__':
    main()
