"""One worker of PyTorch's DistributedDataParallel over gloo, for `gradmesh scaling --beside`.

The launcher sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and STUDY_LAYERS, STUDY_BATCH (of all workers together),
STUDY_SECONDS and STUDY_THREADS. A world of one trains without DistributedDataParallel. Rank 0 writes one JSON object to
the file STUDY_OUT: the median step of the slowest rank. Same model, loss and optimizer as gradmesh scaling trains."""
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn

BATCHES, WARM_UP, GUESS, FEWEST, MOST = 4, 4, 3, 8, 1000

torch.set_num_threads(int(os.environ["STUDY_THREADS"]))
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
sizes = [int(size) for size in os.environ["STUDY_LAYERS"].split(",")]
batch = int(os.environ["STUDY_BATCH"])
if n > 1:
    dist.init_process_group("gloo")

torch.manual_seed(1)
layers = []
for below, above in zip(sizes, sizes[1:]):
    layers += [nn.Linear(below, above), nn.ReLU()]
model = nn.Sequential(*layers[:-1])
if n > 1:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_of = nn.CrossEntropyLoss()
torch.manual_seed(100 + rank)
rows = batch // n + (1 if rank < batch % n else 0)
inputs = [torch.rand(rows, sizes[0]) for _ in range(BATCHES)]
labels = [torch.randint(0, sizes[-1], (rows,)) for _ in range(BATCHES)]


def step(k):
    optimizer.zero_grad()
    loss_of(model(inputs[k % BATCHES]), labels[k % BATCHES]).backward()
    optimizer.step()


def largest(value):
    """Of all ranks."""
    tensor = torch.tensor([value], dtype=torch.float64)
    if n > 1:
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return float(tensor)


for k in range(WARM_UP):
    step(k)
start = time.perf_counter()
for k in range(GUESS):
    step(k)
guess = largest((time.perf_counter() - start) / GUESS)
count = min(max(int(float(os.environ["STUDY_SECONDS"]) / guess), FEWEST), MOST)
if n > 1:
    dist.barrier()
times, last = [], time.perf_counter()
for k in range(count):
    step(k)
    now = time.perf_counter()
    times.append(now - last)
    last = now
times.sort()
median = largest((times[(count - 1) // 2] + times[count // 2]) / 2)
if rank == 0:
    with open(os.environ["STUDY_OUT"], "w") as file:
        json.dump({"system": "pytorch-ddp-gloo", "version": torch.__version__, "median_ms": median * 1e3}, file)
if n > 1:
    dist.barrier()
    dist.destroy_process_group()
