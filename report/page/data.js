/* data.js - the page's data, sorted: what each section draws from. Nothing is drawn here. */
'use strict';

/* {"files": [...]} as report/page.c writes it -> one object with a list for each kind. */
gm.read = document => {
  const data = { version: document.version, made_at: document.made_at, live: document.live, files: document.files || [],
    train: [], scaling: [], plans: [], bench: [], limits: null, peers: [], traces: [] };
  for (const file of data.files) {
    if (file.kind === 'train') data.train.push(...gm.readTrain(file));
    else if (file.kind === 'scaling') data.scaling.push(...file.data);
    else if (file.kind === 'plan') data.plans.push({ ...file.data, name: file.name });
    else if (file.kind === 'bench') data.bench.push(...file.data.results.map(row => ({ ...row, system: 'gradmesh' })));
    else if (file.kind === 'limits') data.limits = file.data;
    else if (file.kind === 'peers') {
      data.peers.push(...file.data.filter(row => row.system !== 'limits'));
      data.limits = data.limits || gm.limitsAmong(file.data);
    }
    else if (file.kind === 'trace') data.traces.push(gm.readTrace(file));
  }
  data.scaling = gm.newest(data.scaling);
  return data;
};

/* What the machine carried in the same runs as the peers: the best median of two processes that send at once over TCP. */
gm.limitsAmong = rows => {
  const duplex = rows.filter(row => row.system === 'limits' && row.limit === 'duplex' && row.over === 'tcp' && row.set === 'tcp' && row.processes === 2 && gm.isNumber(row.GBps));
  const variants = gm.groupBy(duplex, row => [row.write_bytes, row.buffers, row.congestion_control].join());
  const medians = [...variants.values()].map(same => gm.median(same.map(row => row.GBps)));
  return medians.length > 0 ? { duplex_GBps: Math.max(...medians) } : null;
};

/* ---- training ---- */

/* A log may hold several runs, one after the other (resumed ones): each start begins one. */
gm.readTrain = file => {
  const runs = [];
  for (const record of file.data) {
    if (record.event === 'start' || runs.length === 0) runs.push({ name: file.name, start: {}, steps: [], epochs: [], end: null });
    const run = runs[runs.length - 1];
    if (record.event === 'start') run.start = record;
    else if (record.event === 'step') run.steps.push(record);
    else if (record.event === 'epoch') run.epochs.push(record);
    else if (record.event === 'end') run.end = record;
  }
  return runs;
};

/* The same of each rank, from the records that a live page gets: [{rank, n_steps, compute_ms, ...}], of the last `most` records. */
gm.trainSplitByRank = (run, most) => {
  const records = run.steps.filter(record => Array.isArray(record.by_rank)).slice(-most), first = records[0];
  if (!first) return null;
  const before = run.steps[run.steps.indexOf(first) - 1];
  const from = before ? before.step : run.start.first_step || 0, n = records[records.length - 1].step - from;
  const mean = (i, key) => gm.sum(records.map(record => (record.by_rank[i] || {})[key] || 0)) / Math.max(1, n);
  return { from: from + 1, to: from + n, ranks: first.by_rank.map((own, i) => ({ rank: own.rank, compute_ms: mean(i, 'compute_ms'),
    comm_exposed_ms: mean(i, 'comm_exposed_ms'), comm_hidden_ms: mean(i, 'comm_hidden_ms'), wait_ms: mean(i, 'wait_ms') })) };
};

/* Milliseconds of a run by what they went into, over all of its step records: those of rank 0, which writes the log. */
gm.trainSplit = run => {
  const records = run.steps.length > 0 ? run.steps : run.epochs;
  const total = key => gm.sum(records.map(record => record[key] || 0));
  const n = records.length > 0 ? records[records.length - 1].step - (run.start.first_step || 0) : 0;
  return { n_steps: n, compute_ms: total('compute_ms'), comm_exposed_ms: total('comm_exposed_ms'),
    comm_hidden_ms: total('comm_hidden_ms'), wait_ms: total('wait_ms'), elapsed_ms: total('elapsed_ms') };
};

/* ---- scaling ---- */

gm.peerOf = point => point.peer || 'gradmesh';
gm.isOurs = point => gm.peerOf(point) === 'gradmesh';
gm.transportOf = point => point.transport_used || point.transport;

/* How a study was made, besides regime and world size. World size 1 has no network: it belongs to all. */
gm.setup = point => [point.network, gm.transportOf(point), point.wire, point.overlap === true ? 'overlapped' : '']
  .filter(Boolean).join(' · ');

/* The same point measured again replaces the older one. */
gm.newest = points => {
  const kept = new Map();
  for (const point of points) {
    const layers = Array.isArray(point.layers) ? point.layers.join(',') : point.layers;
    kept.set([gm.peerOf(point), point.regime, point.world_size, point.transport, point.wire, point.batch, layers, point.network,
      point.overlap].join('|'), point);
  }
  return [...kept.values()];
};

gm.regimes = { heavy: 'heavy: one core a worker, large batch', light: 'light: one core a worker, batch 512',
  shared: 'shared: workers compete for all cores' };
gm.regimeOrder = ['heavy', 'light', 'shared'];
gm.regimesOf = points => gm.unique(points.map(point => point.regime)).sort((a, b) =>
  (gm.regimeOrder.indexOf(a) + 99) % 99 - (gm.regimeOrder.indexOf(b) + 99) % 99);

/* ---- traces ---- */

const laneName = tid => ({ 0: 'training', 1: 'collectives', 2: 'messages', 3: 'sends', 4: 'receives' })[tid] || 'overlapping';

/* Events -> spans in order of time. The same file again is the same trace: on a live page most of them have not changed. */
const readTraces = new WeakMap();
gm.readTrace = file => {
  if (!readTraces.has(file.data)) readTraces.set(file.data, readTrace(file));
  return readTraces.get(file.data);
};
const readTrace = file => {
  const other = file.data.otherData || {};
  const spans = [], lanes = new Map();
  for (const event of file.data.traceEvents) {
    if (event.ph === 'M' && event.name === 'thread_name' && event.args) lanes.set(event.pid + ':' + event.tid, event.args.name);
    if (event.ph !== 'X' || !gm.isNumber(event.ts)) continue;
    spans.push({ rank: event.pid, tid: event.tid, cat: event.cat || '', name: event.name || '', start: event.ts,
      end: event.ts + (event.dur || 0), args: event.args || {} });
  }
  spans.sort((a, b) => a.start - b.start);
  for (const span of spans) span.lane = lanes.get(span.rank + ':' + span.tid) || laneName(span.tid);
  const ranks = gm.unique(spans.map(span => span.rank)).sort((a, b) => a - b);
  return { name: file.name, other, spans, ranks, world_size: other.world_size || ranks.length,
    ops: gm.opsOf(spans), clock_error_us: Math.max(0, ...(other.clock_error_us || []).filter(gm.isNumber)) };
};

/* The collectives of a trace, each with its spans on all ranks and its transfers. */
gm.opsOf = spans => {
  const ops = new Map();
  for (const span of spans) {
    const seq = span.args.seq;
    if (seq === undefined || !['op', 'send', 'receive'].includes(span.cat)) continue;
    const key = (span.args.communicator || 0) + ':' + seq; // each communicator counts its own calls
    if (!ops.has(key)) ops.set(key, { seq, calls: [], sends: [], receives: [] });
    ops.get(key)[span.cat === 'op' ? 'calls' : span.cat === 'send' ? 'sends' : 'receives'].push(span);
  }
  for (const op of ops.values()) {
    const first = op.calls[0] || op.sends[0] || op.receives[0];
    Object.assign(op, { collective: first.args.collective || first.name, algo: first.args.algo || '', bytes: first.args.bytes || 0,
      count: first.args.count, dtype: first.args.dtype || '', transfers: op.sends.length });
  }
  return [...ops.values()];
};

/* What a rank of a trace spent its time on: {rank, compute_ms, comm_exposed_ms, wait_ms, other_ms}. */
gm.traceSplit = trace => trace.ranks.map(rank => {
  const total = (test, of) => gm.sum(trace.spans.filter(span => span.rank === rank && test(span)).map(of)) / 1000;
  const length = span => span.end - span.start;
  const collective = span => span.cat === 'op' && (span.args.collective || span.name) === 'all_reduce';
  const wait = total(collective, span => Math.min(length(span), span.args.wait_us || 0));
  return { rank, compute_ms: total(span => span.cat === 'compute', length), wait_ms: wait,
    comm_exposed_ms: total(collective, length) - wait, comm_hidden_ms: 0 };
}).filter(split => split.compute_ms > 0);
