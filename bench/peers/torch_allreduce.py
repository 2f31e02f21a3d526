"""torch_allreduce.py - times torch.distributed.all_reduce of floats in place, with PyTorch's Gloo backend.

    RANK=r WORLD_SIZE=n MASTER_ADDR=... MASTER_PORT=... GLOO_SOCKET_IFNAME=... torch_allreduce.py BYTES...

As driver.h says. It is in Python because that is how PyTorch's users call it.
"""
import json
import os
import resource
import sys
import time

import torch
import torch.distributed as dist

MIN_ITERS, MAX_ITERS = 5, 1000


def combined(values, op):
    """The ranks' figures, combined."""
    figures = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(figures, op=op)
    return figures.tolist()


def cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def count_wrong(values, index, n_ranks):
    expected = n_ranks * (index % 97).float() + n_ranks * (n_ranks - 1) // 2 * (index % 13).float()
    return int((values != expected).sum())


def checked(index, rank, n_ranks):
    values = (index % 97).float() + rank * (index % 13).float()
    dist.all_reduce(values)
    return count_wrong(values, index, n_ranks)


def choose_iters(values, size_bytes):
    n_warmup = 10 if size_bytes <= 65536 else 1
    begin = time.perf_counter()
    for _ in range(n_warmup):
        dist.all_reduce(values)
    estimate = combined([(time.perf_counter() - begin) / n_warmup], dist.ReduceOp.MAX)[0]
    budget = float(os.environ.get("BENCH_BUDGET", "0.3"))
    return min(max(int(budget / max(estimate, 1e-9)), MIN_ITERS), MAX_ITERS)


def time_iterations(values, n_iters):
    times = [0.0] * n_iters
    for i in range(n_iters):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(values)
        times[i] = time.perf_counter() - begin
    return sorted(combined(times, dist.ReduceOp.MAX))


def run_back_to_back(values, n):
    """Seconds, and processor seconds, of one operation."""
    dist.barrier()
    cpu, begin = cpu_s(), time.perf_counter()
    for _ in range(n):
        dist.all_reduce(values)
    return (time.perf_counter() - begin) / n, (cpu_s() - cpu) / n


def measure(size_bytes, rank, n_ranks):
    index = torch.arange(size_bytes // 4)
    n_wrong = checked(index, rank, n_ranks)
    values = torch.zeros(size_bytes // 4)  # sums that are added to themselves grow without end; zeros stay
    dist.barrier()
    n_iters = choose_iters(values, size_bytes)
    times = time_iterations(values, n_iters)
    back_to_back, cpu = run_back_to_back(values, max(n_iters // 2, 2))
    n_wrong += checked(index, rank, n_ranks)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    cpu, n_wrong = combined([cpu, n_wrong], dist.ReduceOp.SUM)
    back_to_back, peak = combined([back_to_back, peak], dist.ReduceOp.MAX)
    if rank != 0:
        return
    median = times[n_iters // 2]
    factor = 2 * (n_ranks - 1) / n_ranks
    algbw = size_bytes / median / 1e9
    print(json.dumps({
        "collective": "all_reduce", "world_size": n_ranks, "size_bytes": size_bytes, "in_place": True,
        "iters": n_iters, "median_us": round(median * 1e6, 3), "min_us": round(times[0] * 1e6, 3),
        "p99_us": round(times[min(n_iters * 99 // 100, n_iters - 1)] * 1e6, 3),
        "max_us": round(times[-1] * 1e6, 3), "back_to_back_us": round(back_to_back * 1e6, 3),
        "algbw_GBps": round(algbw, 6), "busbw_GBps": round(algbw * factor, 6), "wrong": int(n_wrong),
        "cpu_s_per_GB": round(cpu / (size_bytes * factor * n_ranks / 1e9), 4), "peak_rss_bytes": int(peak),
    }, separators=(",", ":")), flush=True)


torch.set_num_threads(1)
dist.init_process_group("gloo")
for argument in sys.argv[1:]:
    measure(int(argument), dist.get_rank(), dist.get_world_size())
dist.barrier()
