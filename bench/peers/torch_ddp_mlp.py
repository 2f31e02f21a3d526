"""Step time of data-parallel training of an MLP in PyTorch (CPU, gloo, DDP with its defaults).

Launch one process per rank with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; WORLD_SIZE=1 trains
without DDP.  TORCH_THREADS (default 1) sets the threads of torch and must go with
OPENBLAS_NUM_THREADS.  TORCH_BATCHES: the global batches (default 512,2048); TORCH_MODELS: A (784-256-10),
B (784-1024-10), or A,B.  Prints one JSON line per (model, global batch)."""
import json, os, sys, time
import torch
import torch.distributed as dist
import torch.nn as nn

threads = int(os.environ.get("TORCH_THREADS", "1"))
torch.set_num_threads(threads)
rank, n = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if n > 1:
    dist.init_process_group("gloo")
budget = float(os.environ.get("BENCH_BUDGET", "1.0"))
label = os.environ.get("BENCH_LABEL", "torch-ddp")
batches = [int(b) for b in os.environ.get("TORCH_BATCHES", "512,2048").split(",")]
models = os.environ.get("TORCH_MODELS", "A,B").split(",")
NB = 4  # distinct batches, cycled

for model, hidden in (("A", 256), ("B", 1024)):
    for gb in batches if model in models else ():
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10))
        params = sum(p.numel() for p in net.parameters())
        m = nn.parallel.DistributedDataParallel(net) if n > 1 else net
        opt = torch.optim.SGD(m.parameters(), lr=0.1)
        lossf = nn.CrossEntropyLoss()
        mine = gb // n + (1 if rank < gb % n else 0)
        torch.manual_seed(100 + rank)
        X = [torch.rand(mine, 784) for _ in range(NB)]
        Y = [torch.randint(0, 10, (mine,)) for _ in range(NB)]

        def step(k):
            opt.zero_grad()
            loss = lossf(m(X[k % NB]), Y[k % NB])
            loss.backward()
            opt.step()
            return loss

        for k in range(5):
            step(k)
        if n > 1:
            dist.barrier()
        s = time.perf_counter()
        for k in range(5):
            step(k)
        est = torch.tensor([(time.perf_counter() - s) / 5], dtype=torch.float64)
        if n > 1:
            dist.all_reduce(est, op=dist.ReduceOp.MAX)
        it = min(max(int(budget / float(est)), 10), 500)
        t = [0.0] * it
        last = time.perf_counter()
        for k in range(it):
            step(k)
            now = time.perf_counter()
            t[k] = now - last
            last = now
        total = sum(t)
        same = True
        if n > 1:  # replicas must hold the same weights
            w = torch.cat([p.detach().flatten() for p in net.parameters()])
            lo, hi = w.clone(), w.clone()
            dist.all_reduce(lo, op=dist.ReduceOp.MIN)
            dist.all_reduce(hi, op=dist.ReduceOp.MAX)
            same = bool((lo == hi).all())
        if rank == 0:
            v = sorted(t)
            print(json.dumps(dict(
                sys=label, n=n, threads=threads, model=model, params=params, batch=gb, steps=it,
                min_us=round(v[0] * 1e6, 1), med_us=round(v[it // 2] * 1e6, 1),
                max_us=round(v[-1] * 1e6, 1), mean_us=round(total / it * 1e6, 1),
                replicas_equal=same)), flush=True)
        del m
if n > 1:
    dist.barrier()
