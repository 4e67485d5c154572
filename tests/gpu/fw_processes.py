"""Framework items: several processes at once, NCCL, and NVML."""

import json
import os
import subprocess
import sys
import tempfile

from frameworks import Skip

HERE = os.path.dirname(os.path.abspath(__file__))
PART_SECONDS = 60


def parts(name, environments):
    """Runs a part of this file in processes of their own, all at once; their results."""
    with tempfile.TemporaryDirectory(prefix='flyt-parts-') as folder:
        started = []
        for number, environment in enumerate(environments):
            path = os.path.join(folder, str(number))
            command = [sys.executable, os.path.join(HERE, 'frameworks.py'), name, path]
            environment = dict(os.environ, FLYT_PARTS=folder, **environment)
            started.append((path, subprocess.Popen(command, env=environment, stdout=sys.stderr)))
        try:
            statuses = [process.wait(PART_SECONDS) for _, process in started]
        finally:
            for _, process in started:
                process.kill()
                process.wait()
        found = []
        for (path, _), status in zip(started, statuses):
            if status != 0:
                raise RuntimeError(f'{name} ended with status {status}')
            with open(path, encoding='utf-8') as file:
                found.append(json.load(file)['equal'])
        return found


def matmuls(found):
    import torch
    from fw_torch import normal
    seed = int(os.environ['FLYT_PART_SEED'])
    a = normal(512, 512, seed=seed) / 23
    b = a
    for _ in range(200):
        b = torch.tanh(b @ a)
    found.keep('chain', lambda: b)
    found.keep('copies', lambda: [normal(2_000_000, seed=seed + n) for n in range(3)])


def two_processes(found):
    import torch
    from fw_torch import normal
    # This one has a session, too.
    found.keep('before', lambda: torch.tanh(normal(300, 300)))
    found.keep('children', lambda: parts('matmuls', [{'FLYT_PART_SEED': '1'},
                                                     {'FLYT_PART_SEED': '2'}]))
    found.keep('afterwards', lambda: torch.tanh(normal(300, 300)))


def shared_child(to_child, to_parent):
    shared = to_child.get()
    shared.add_(1)
    import torch
    torch.cuda.synchronize()
    to_parent.put(float(shared.sum().item()))
    # The parent's memory must not go before this end lets it go.
    to_child.get()


def shared_tensors(found):
    """A tensor in the GPU memory of two processes, by CUDA's handles."""
    import torch
    import torch.multiprocessing
    context = torch.multiprocessing.get_context('spawn')
    to_child, to_parent = context.Queue(), context.Queue()
    child = context.Process(target=shared_child, args=(to_child, to_parent))
    child.start()
    tensor = torch.arange(1000, dtype=torch.float32, device='cuda')
    try:
        def exchange():
            to_child.put(tensor)
            return to_parent.get(timeout=PART_SECONDS)

        found.keep('what the child sees', exchange)
        found.keep('what the child wrote', lambda: tensor)
        to_child.put(None)
        child.join(20)
        found.keep('its end', child.exitcode)
    finally:
        if child.is_alive():
            child.kill()
        child.join()


def collectives(found, rank, size):
    import torch
    import torch.distributed as distributed
    from fw_torch import whole
    mine = whole(100_003, seed=rank)

    def all_reduce(op):
        value = mine.clone()
        distributed.all_reduce(value, op)
        return value

    def broadcast():
        value = mine.clone()
        distributed.broadcast(value, 0)
        return value

    def all_gather():
        out = [torch.empty_like(mine) for _ in range(size)]
        distributed.all_gather(out, mine)
        return out

    def reduce_scatter():
        out = torch.empty(1000, device='cuda')
        distributed.reduce_scatter_tensor(out, whole(1000 * size, seed=rank))
        return out

    def ring():
        out = torch.empty_like(mine)
        requests = distributed.batch_isend_irecv([
            distributed.P2POp(distributed.isend, mine, (rank + 1) % size),
            distributed.P2POp(distributed.irecv, out, (rank - 1) % size)])
        for request in requests:
            request.wait()
        return out

    found.keep('sum', lambda: all_reduce(distributed.ReduceOp.SUM))
    found.keep('maximum', lambda: all_reduce(distributed.ReduceOp.MAX))
    found.keep('broadcast', broadcast)
    found.keep('all_gather', all_gather)
    found.keep('reduce_scatter', reduce_scatter)
    if size > 1:
        found.keep('ring', ring)

    def data_parallel():
        torch.manual_seed(5)
        model = torch.nn.Linear(64, 8).cuda()
        wrapped = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
        optimiser = torch.optim.SGD(model.parameters(), lr=0.125)
        for step in range(3):
            optimiser.zero_grad()
            wrapped(whole(16, 64, seed=step * size + rank)).sum().backward()
            optimiser.step()
        return list(model.parameters())

    found.keep('data parallel', data_parallel)


def nccl_rank(found):
    import torch
    import torch.distributed as distributed
    rank, size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
    torch.cuda.set_device(rank)
    distributed.init_process_group('nccl', rank=rank, world_size=size,
                                   init_method=f'file://{os.environ["FLYT_PARTS"]}/meeting')
    try:
        collectives(found, rank, size)
    finally:
        distributed.destroy_process_group()


def ranks(size):
    return [{'RANK': str(rank), 'WORLD_SIZE': str(size)} for rank in range(size)]


def nccl_one(found):
    import torch.distributed as distributed
    if not distributed.is_nccl_available():
        raise Skip('no NCCL in this PyTorch')
    found.keep('one rank', lambda: parts('nccl_rank', ranks(1)))


def nccl_two(found):
    import torch
    if torch.cuda.device_count() < 2:
        raise Skip('needs two GPUs')
    found.keep('two ranks', lambda: parts('nccl_rank', ranks(2)))


def pynvml(found):
    """Facts that stay; values that change are only asked for."""
    import pynvml as nvml
    nvml.nvmlInit()
    found.keep('driver', lambda: nvml.nvmlSystemGetDriverVersion())
    found.keep('cuda', lambda: nvml.nvmlSystemGetCudaDriverVersion())
    for index in range(nvml.nvmlDeviceGetCount()):
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        found.keep(f'{index} facts', lambda device=device: [
            nvml.nvmlDeviceGetName(device), nvml.nvmlDeviceGetUUID(device),
            nvml.nvmlDeviceGetMemoryInfo(device).total, nvml.nvmlDeviceGetNumGpuCores(device),
            nvml.nvmlDeviceGetCudaComputeCapability(device)])
        for name in ('nvmlDeviceGetUtilizationRates', 'nvmlDeviceGetPowerUsage',
                     'nvmlDeviceGetPciInfo', 'nvmlDeviceGetComputeRunningProcesses',
                     'nvmlDeviceGetTotalEccErrors', 'nvmlDeviceGetMigMode'):
            arguments = (device, 0, 0) if name == 'nvmlDeviceGetTotalEccErrors' else (device,)
            # What it says changes; that it answers, or how it refuses, does not.
            found.keep(f'{index} {name}', lambda name=name, arguments=arguments:
                       type(getattr(nvml, name)(*arguments)).__name__)
    nvml.nvmlShutdown()
    import torch
    found.keep('torch', lambda: [torch.cuda.device_count(), torch.cuda.get_device_name(0),
                                 type(torch.cuda.utilization()).__name__,
                                 type(torch.cuda.temperature()).__name__])
    command = ['nvidia-smi', '--query-gpu=index,name,uuid,driver_version,memory.total',
               '--format=csv,noheader']
    found.keep('nvidia-smi', lambda: subprocess.run(command, capture_output=True, text=True,
                                                    check=True, timeout=30).stdout)
