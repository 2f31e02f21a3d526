/* verdicts.js - what the data say, in plain words: a question, a short answer, a sentence with the figures.
 *
 * Each function takes what gm.read made and returns null, or {question, answer, tone, text, link}; tone is 'good', 'bad'
 * or 'plain'. They draw nothing, and every figure in them is computed from the records. */
'use strict';

const worlds = n => n === 1 ? 'one worker' : n + ' workers';

/* ---- does it pay ---- */

const paysFromScaling = points => {
  const ours = points.filter(p => gm.isOurs(p) && p.world_size > 1 && gm.isNumber(p.speedup));
  if (ours.length === 0) return null;
  const best = gm.regimesOf(ours).map(regime =>
    ours.filter(p => p.regime === regime).reduce((a, b) => b.speedup > a.speedup ? b : a));
  const paying = best.filter(p => p.speedup > 1);
  const loses = best.filter(p => p.speedup <= 1);
  const share = p => gm.isNumber(p.zero_comm_speedup) ? `, ${gm.percent(p.speedup / p.zero_comm_speedup)} of what is possible without communication` : '';
  const parts = paying.map(p => `${p.regime}: ${gm.times(p.speedup)} as fast with ${worlds(p.world_size)} as with one${share(p)}`)
    .concat(loses.map(p => `${p.regime}: does not pay, ${gm.times(p.speedup)} at best`));
  return { question: 'Does it pay?', answer: loses.length === 0 ? 'Yes' : paying.length === 0 ? 'No' : 'It depends on the work',
    tone: loses.length === 0 ? 'good' : paying.length === 0 ? 'bad' : 'plain', text: gm.sentence(parts.join('; ')), link: 'scaling' };
};

const paysFromPlan = plan => {
  const points = plan.points.filter(p => p.world_size > 1);
  if (points.length === 0) return null;
  const best = points.reduce((a, b) => (b.predicted_speedup || 0) > (a.predicted_speedup || 0) ? b : a);
  const pays = points.some(p => p.pays);
  return { question: 'Does it pay?', answer: pays ? 'Yes, says the planner' : 'No, says the planner', tone: pays ? 'good' : 'bad',
    text: `Predicted best: ${gm.times(best.predicted_speedup)} as fast with ${worlds(best.world_size)} as with one.`, link: 'plan' };
};

gm.sentence = text => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.');

/* ---- who is slow ---- */

/* Waiting by the rank that was waited for, over all traces: [{rank, us}], longest first; and what it is of the time. */
gm.blame = trace => {
  const by = new Map();
  let all = 0, length = 0;
  for (const op of trace.ops) {
    if (op.collective !== 'all_reduce') continue;
    const waits = op.calls.filter(call => gm.isNumber(call.args.wait_us) && call.args.wait_us > 0 && call.args.waits_for >= 0);
    length += Math.max(0, ...op.calls.map(call => call.end - call.start));
    for (const call of waits) {
      /* An operation holds everybody up once, however many wait in it. */
      const us = Math.min(call.args.wait_us, call.end - call.start) / Math.max(1, op.calls.length - 1);
      by.set(call.args.waits_for, (by.get(call.args.waits_for) || 0) + us);
      all += us;
    }
  }
  const ranks = [...by].map(([rank, us]) => ({ rank, us })).sort((a, b) => b.us - a.us);
  return { ranks, all, length, n_ops: trace.ops.filter(op => op.collective === 'all_reduce').length };
};

/* A rank is called slow by the same rule everywhere (train's summary, the study, here): the others wait for it for more than
 * this part of their time. */
const SLOW_SHARE = 0.05;

/* While it trains: since the last report. */
const slowFromStep = run => {
  const step = run.steps[run.steps.length - 1];
  if (run.end || !step || !(run.start.world_size > 1) || step.straggler === undefined || !gm.isNumber(step.last_rank)) return null;
  const slow = step.straggler !== null;
  return { question: 'Which rank is slow?', answer: slow ? `Rank ${step.straggler}` : 'None', tone: slow ? 'bad' : 'good', link: 'split',
    text: slow ? `Up to step ${gm.number(step.step)} it came last to ${gm.percent(step.last_share)} of the steps; without that each would be ${gm.ms(step.last_cost_ms)} shorter.`
      : `Up to step ${gm.number(step.step)} no rank keeps the others waiting for more than ${gm.percent(SLOW_SHARE)} of a step.` };
};

const slowFromTrain = run => {
  const end = run.end;
  if (!end || !(end.world_size > 1) || end.straggler === undefined) return null;
  const step = gm.ms(end.elapsed_ms / (end.steps - (end.first_step || 0)));
  return end.straggler === null
    ? { question: 'Which rank is slow?', answer: 'None', tone: 'good', link: 'timeline',
        text: `No rank keeps the others waiting for more than ${gm.percent(SLOW_SHARE)} of a step.` +
          (gm.isNumber(end.last_rank) ? ` Rank ${end.last_rank} came last most often, to ${gm.percent(end.last_share)} of the steps.` : '') }
    : { question: 'Which rank is slow?', answer: `Rank ${end.straggler}`, tone: 'bad', link: 'timeline',
        text: `It came last to ${gm.percent(end.last_share)} of the steps; without that each would be ${gm.ms(end.last_cost_ms)} shorter, of ${step}.` };
};

const LEAST_OPS = 10;

const slowFromTrace = trace => {
  if (trace.world_size < 2) return null;
  const blame = gm.blame(trace);
  if (blame.n_ops < LEAST_OPS || blame.ranks.length === 0) return null;
  const [first] = blame.ranks, share = first.us / blame.all, each = first.us / blame.n_ops;
  const time = Math.max(...trace.spans.map(s => s.end)) - Math.min(...trace.spans.map(s => s.start));
  const isSlow = share > 1.5 / trace.world_size && first.us > SLOW_SHARE * time && each > trace.clock_error_us;
  return isSlow
    ? { question: 'Which rank is slow?', answer: `Rank ${first.rank}`, tone: 'bad', link: 'timeline',
        text: `It causes ${gm.percent(share)} of the waiting: the others wait ${gm.us(each)} for it in an average operation, ${gm.percent(first.us / time)} of the time.` }
    : { question: 'Which rank is slow?', answer: 'None', tone: 'good', link: 'timeline',
        text: `No rank keeps the others waiting for more than ${gm.percent(SLOW_SHARE)} of the time. Rank ${first.rank} causes most of the waiting, ${gm.us(each)} an operation.` };
};

const slowFromScaling = points => {
  const with_ranks = points.filter(p => gm.isOurs(p) && p.world_size > 1 && Array.isArray(p.by_rank) && p.by_rank.length > 1);
  if (with_ranks.length === 0) return null;
  /* The rank that waits least is the one the others wait for; look where that difference is largest. */
  const spread = p => {
    const waits = p.by_rank.map(r => r.wait_ms);
    return (Math.max(...waits) - Math.min(...waits)) / p.median_ms;
  };
  const worst = with_ranks.reduce((a, b) => spread(b) > spread(a) ? b : a);
  const rank = gm.isNumber(worst.slowest_rank) && worst.slowest_rank >= 0 ? worst.slowest_rank
    : worst.by_rank.reduce((a, b) => b.wait_ms < a.wait_ms ? b : a).rank;
  const cost = Math.max(...worst.by_rank.map(r => r.wait_ms)) - Math.min(...worst.by_rank.map(r => r.wait_ms));
  const slow = spread(worst) > SLOW_SHARE && gm.isNumber(worst.slowest_rank) && worst.slowest_rank >= 0;
  return { question: 'Which rank is slow?', answer: slow ? `Rank ${rank}` : 'None in particular', tone: slow ? 'bad' : 'good', link: 'split',
    text: slow ? `At ${worst.regime} work with ${worlds(worst.world_size)} it keeps the others waiting ${gm.ms(cost)} in a step of ${gm.ms(worst.median_ms)}.`
      : `At no measured point does one and the same rank keep the others waiting for more than ${gm.percent(SLOW_SHARE)} of a step.` };
};

/* ---- how far from optimal is the traffic ---- */

const trafficFromTrain = run => {
  const end = run.end;
  if (!end || !(end.world_size > 1) || !Array.isArray(end.payload_bytes_sent)) return null;
  const n = end.world_size, steps = end.steps - (end.first_step || 0);
  const most = Math.max(...end.payload_bytes_sent), whole = end.naive_payload_bytes / (n - 1);
  const ratio = most / (whole * 2 * (n - 1) / n);
  if (!(steps > 0) || !(whole > 0)) return null;
  const lean = end.wire && end.wire !== 'f32';
  return { question: 'How far from optimal is the traffic?', answer: `${ratio.toFixed(4)} of the optimum`, tone: ratio < 1.01 ? 'good' : 'bad',
    text: `A rank sent ${gm.bytes(most / steps)} a step at most to average ${gm.bytes(whole / steps)} of gradients among ${n}` +
      (lean ? `, as ${end.wire} on the wire` : '') +
      `; handing whole gradients around would take ${gm.bytes(end.naive_payload_bytes / steps)}, ${gm.number(end.naive_payload_bytes / most)} times as much.`,
    link: 'ring' };
};

const trafficFromTrace = data => {
  const ring = gm.pickOp(data, 'ring');
  if (!ring) return null;
  const n = ring.trace.world_size, sent = gm.sentBytes(ring.trace, ring.op), most = Math.max(...sent);
  const ratio = most / (ring.op.bytes * 2 * (n - 1) / n), naive = gm.pickOp(data, 'naive');
  const naiveMost = naive && naive.trace.world_size === n ? Math.max(...gm.sentBytes(naive.trace, naive.op)) / naive.op.bytes * ring.op.bytes : 0;
  return { question: 'How far from optimal is the traffic?', answer: `${ratio.toFixed(4)} of the optimum`, tone: ratio < 1.01 ? 'good' : 'bad',
    text: `To sum ${gm.size(ring.op.bytes)} over ${n} ranks, each must send at least 2(N−1)/N of it; the recorded ring sent ${gm.bytes(most)} at most` +
      (naiveMost ? `, the naive way ${gm.bytes(naiveMost)}, ${gm.number(naiveMost / most)} times as much.` : '.'), link: 'ring' };
};

/* ---- the others ---- */

const learned = run => {
  const end = run.end, last = run.epochs[run.epochs.length - 1];
  const accuracy = end && gm.isNumber(end.test_accuracy) ? end.test_accuracy : last && last.test_accuracy;
  if (!gm.isNumber(accuracy)) return null;
  const n = (end || run.start).world_size;
  const same = end && n > 1 ? (end.workers_identical ? ` All ${n} workers end with the same bits.` : ' The workers ended with different bits!') : '';
  return { question: 'Did it learn?', answer: `${(100 * accuracy).toFixed(2)} % right`, tone: end && end.workers_identical === false ? 'bad' : 'good',
    text: `of ${gm.number((end || last).test_samples)} samples that it never saw, after ${gm.number((end || last).steps || last.step)} steps.${same}`, link: 'learning' };
};

const bandwidth = data => {
  const peers = gm.peerRatios(data.peers);
  if (peers.length > 0) {
    const ahead = peers.filter(p => p.ratio > 1).length, middle = gm.median(peers.map(p => p.ratio));
    const worst = peers.reduce((a, b) => b.ratio < a.ratio ? b : a);
    return { question: 'How fast is all-reduce?', answer: `${gm.times(middle)} the best peer`, tone: middle >= 1 ? 'good' : 'bad', link: 'bandwidth',
      text: `Faster than the best of ${gm.listed(gm.unique(peers.map(p => p.peer)).sort())} in ${ahead} of ${peers.length} cases; the worst is ${gm.times(worst.ratio)} at ${worst.world_size} ranks and ${gm.size(worst.size_bytes)}.` };
  }
  const rows = data.bench.filter(row => row.collective === 'all_reduce');
  if (rows.length === 0) return null;
  const best = rows.reduce((a, b) => b.busbw_GBps > a.busbw_GBps ? b : a);
  const limit = data.limits && data.limits.duplex_GBps;
  return { question: 'How fast is all-reduce?', answer: `${gm.number(best.busbw_GBps)} GB/s`, tone: 'plain', link: 'bandwidth',
    text: `of bus bandwidth at ${gm.size(best.size_bytes)}${best.transport === 'auto' ? '' : ` over ${best.transport}`}, ${best.world_size} ranks` +
      (limit && best.transport === 'tcp' ? `: ${gm.percent(best.busbw_GBps / limit)} of what two processes exchange over plain sockets here.` : '.') };
};

const planned = plan => {
  const verified = plan.points.filter(p => gm.isNumber(p.measured_ms) && p.measured_ms > 0);
  if (verified.length === 0) return null;
  const errors = verified.map(p => Math.abs(p.predicted_ms / p.measured_ms - 1)), middle = gm.median(errors);
  const worst = verified[errors.indexOf(Math.max(...errors))];
  return { question: 'Is the planner right?', answer: `To within ${gm.percent(middle)}`, tone: middle <= 0.1 ? 'good' : 'bad', link: 'plan',
    text: `Median over ${verified.length} points that were predicted first and then measured; the worst is off by ${gm.percent(Math.max(...errors))}, at ${worlds(worst.world_size)}.` };
};

/* ---- all of them ---- */

const firstOf = (items, f) => { for (const item of items) { const result = f(item); if (result) return result; } return null; };
const last = items => items.slice().reverse();

gm.verdicts = data => [
  paysFromScaling(data.scaling) || firstOf(data.plans, paysFromPlan),
  firstOf(last(data.train).slice(0, 1), slowFromStep) || firstOf(last(data.train), slowFromTrain) || firstOf(data.traces.filter(t => t.spans.some(s => s.cat === 'compute')), slowFromTrace) || slowFromScaling(data.scaling) || firstOf(data.traces, slowFromTrace),
  firstOf(last(data.train), trafficFromTrain) || trafficFromTrace(data),
  firstOf(last(data.train), learned),
  bandwidth(data),
  firstOf(data.plans, planned),
].filter(Boolean);
