"""Framework items: PyTorch's allocators and what they tell."""

import torch

from fw_torch import DEVICE, normal

MIB = 1 << 20


def use(found):
    """The same work with whatever allocator is in use."""
    kept = [normal(size) for size in (1000, 3_000_000, 70_000, 9_000_000)]
    found.keep('allocated', torch.cuda.memory_allocated())
    found.keep('highest', torch.cuda.max_memory_allocated())
    for round_ in range(20):
        kept.append(normal(100_000 + round_ * 50_000, seed=round_))
        del kept[round_ % 3]
    found.keep('contents', lambda: kept)
    found.keep('allocated later', torch.cuda.memory_allocated())
    reserved = torch.cuda.memory_reserved()
    del kept[:]
    torch.cuda.empty_cache()
    found.keep('given back', torch.cuda.memory_allocated())
    found.keep('less reserved', torch.cuda.memory_reserved() < reserved)
    torch.cuda.reset_peak_memory_stats()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        other = normal(500_000) * 2
    other.record_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_stream(side)
    found.keep('another stream', lambda: other + 1)


def too_much(found):
    """More than there is must be an error that a program survives."""
    total = torch.cuda.mem_get_info()[1]

    def ask():
        return torch.empty(2 * total, dtype=torch.uint8, device=DEVICE).shape

    found.keep('more than there is', ask)
    found.keep('afterwards', lambda: normal(1000) + 1)


def memory(found):
    found.keep('total', lambda: torch.cuda.mem_get_info()[1])
    found.keep('properties', lambda: [
        getattr(torch.cuda.get_device_properties(0), name) for name in
        ('name', 'total_memory', 'major', 'minor', 'multi_processor_count', 'warp_size',
         'max_threads_per_multi_processor', 'L2_cache_size')])
    use(found)
    stats = torch.cuda.memory_stats()
    found.keep('statistics', lambda: {name: stats[name] for name in (
        'allocated_bytes.all.current', 'allocated_bytes.all.peak', 'num_alloc_retries',
        'num_ooms')})
    found.keep('snapshot', lambda: len(torch.cuda.memory_snapshot()))
    found.keep('summary is text', lambda: 'CUDA memory summary' in torch.cuda.memory_summary())
    pointer = torch.cuda.caching_allocator_alloc(3 * MIB)
    found.keep('by hand', torch.cuda.memory_allocated())
    torch.cuda.caching_allocator_delete(pointer)
    free = torch.cuda.mem_get_info()[0]
    large = torch.empty(512 * MIB, dtype=torch.uint8, device=DEVICE)
    # Others may use the GPU meanwhile: only that it is much less is sure.
    found.keep('free memory shrinks', lambda: torch.cuda.mem_get_info()[0] < free - 256 * MIB)
    del large
    too_much(found)

    def limited():
        torch.cuda.set_per_process_memory_fraction(0.01)
        try:
            return torch.empty(torch.cuda.mem_get_info()[1] // 20, dtype=torch.uint8, device=DEVICE)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)

    found.keep('fraction', limited)

    def registered():
        host = torch.arange(MIB, dtype=torch.int32)
        runtime = torch.cuda.cudart()
        done = int(runtime.cudaHostRegister(host.data_ptr(), host.numel() * 4, 0))
        moved = host.to(DEVICE, non_blocking=True)
        torch.cuda.synchronize()
        return [done, host.is_pinned(), moved, int(runtime.cudaHostUnregister(host.data_ptr()))]

    found.keep('registered host memory', registered)
    found.keep('pinned', lambda: [normal(3_000_000).cpu().pin_memory().is_pinned(),
                                  torch.empty(5 * MIB, pin_memory=True).is_pinned()])

    def pool():
        mine = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(mine):
            inside = normal(1_000_000)
        return inside * 2

    found.keep('a pool', pool)
    found.keep('ipc_collect', lambda: torch.cuda.ipc_collect())


def memory_expandable(found):
    """Segments that grow, made of reserved addresses and mapped memory."""
    use(found)
    too_much(found)
    parts = [torch.full((20 * MIB,), value, dtype=torch.uint8, device=DEVICE)
             for value in range(10)]
    found.keep('grown', lambda: [part.sum() for part in parts])


def memory_async(found):
    """cudaMallocAsync and its pools."""
    found.keep('backend', torch.cuda.get_allocator_backend())
    use(found)
    too_much(found)
