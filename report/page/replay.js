/* replay.js - a recorded all-reduce, played again: who holds whose contributions at any moment.
 *
 * The trace says which elements went from whom to whom in which step, when, and whether they were added. What a rank
 * holds follows from that alone:
 *
 *     1. In the beginning a rank holds its own contribution to every element, once.
 *     2. What a transfer carries is what its sender held after the rounds before (or, where whole contributions circulate,
 *        as with the naive algorithm, the one that the trace names).
 *     3. At its end what it carried is added to what the receiver holds, or replaces it.
 *
 * So the end is right only if the recorded algorithm was: every rank must hold every contribution exactly once.
 * A round is what goes on at the same time if all links are equally fast. Two clocks: 'bytes', in which round k
 * begins when the busiest rank has sent what the rounds before needed, and 'time', as recorded. */
'use strict';

{
  const isAllReduce = op => op.collective.replace('-', '_') === 'all_reduce';
  const hasPlace = span => gm.isNumber(span.args.first_elem) && span.args.first_elem >= 0 && span.args.n_elems > 0 && gm.isNumber(span.args.peer);

  gm.canReplay = op => isAllReduce(op) && op.sends.length > 0 && op.sends.every(hasPlace);

  /* All that can be played: [{trace, op}]. */
  gm.replayable = data => data.traces.flatMap(trace => trace.ops.filter(gm.canReplay).map(op => ({ trace, op })));

  /* The largest recorded all-reduce by this algorithm. */
  gm.pickOp = (data, algo) => gm.replayable(data).filter(({ op }) => op.algo === algo)
    .reduce((best, one) => !best || one.op.bytes > best.op.bytes ? one : best, null);

  gm.sentBytes = (trace, op) => trace.ranks.map(rank => gm.sum(op.sends.filter(s => s.rank === rank).map(s => s.args.bytes || 0)));

  const key = (from, to, args) => [from, to, args.step, args.first_elem, args.chunk].join(':');

  const transfersOf = op => {
    const arrivals = new Map(op.receives.map(r => [key(r.args.peer, r.rank, r.args), r]));
    return op.sends.map(send => {
      const to = send.args.peer, arrival = arrivals.get(key(send.rank, to, send.args));
      const adds = arrival && arrival.args.reduces !== undefined ? arrival.args.reduces : send.args.reduces;
      return { from: send.rank, to, first: send.args.first_elem, n: send.args.n_elems, bytes: send.args.bytes || 0, step: send.args.step,
        phase: send.args.phase || '', chunk: send.args.chunk, adds, start: send.start, end: Math.max(send.end, arrival ? arrival.end : send.end) };
    });
  };

  /* A step may be cut into several transfers; the first of each rank belong together, the second, ... */
  const setPieces = transfers => {
    for (const own of gm.groupBy(transfers, t => [t.from, t.to, t.phase, t.step].join()).values())
      own.sort((a, b) => a.start - b.start).forEach((t, i) => { t.piece = i; });
  };

  /* Sorted by round; each transfer gets its round's number and its place on the clock of bytes. */
  const setRounds = transfers => {
    setPieces(transfers);
    const groups = [...gm.groupBy(transfers, t => [t.phase, t.step, t.piece].join()).values()]
      .map(group => ({ group, step: group[0].step, piece: group[0].piece }))
      .sort((a, b) => a.step - b.step || a.piece - b.piece);
    const steps = gm.unique(transfers.map(t => t.step)).sort((a, b) => a - b), pieces = Math.max(...transfers.map(t => t.piece)) + 1;
    let at = 0;
    return groups.map(({ group, step }, round) => {
      const bytes = Math.max(...[...gm.groupBy(group, t => t.from).values()].map(own => gm.sum(own.map(t => t.bytes))));
      for (const t of group) Object.assign(t, { round, from_bytes: at, to_bytes: at + bytes });
      at += bytes;
      return { transfers: group, phase: group[0].phase, from: at - bytes, to: at,
        name: `step ${steps.indexOf(step) + 1} of ${steps.length}` + (pieces > 1 ? `, piece ${group[0].piece + 1} of ${pieces}` : '') };
    });
  };

  const segmentsOf = (transfers, count) => {
    const borders = gm.unique([0, count, ...transfers.flatMap(t => [t.first, t.first + t.n])]).filter(b => b <= count).sort((a, b) => a - b);
    return borders.slice(1).map((end, i) => ({ first: borders[i], n: end - borders[i] }));
  };

  gm.replay = (trace, op) => {
    const ranks = trace.ranks, n = ranks.length, transfers = transfersOf(op), rounds = setRounds(transfers);
    const count = op.count || Math.max(...transfers.map(t => t.first + t.n)), segments = segmentsOf(transfers, count);
    const place = new Map(ranks.map((rank, i) => [rank, i]));
    for (const t of transfers) {
      t.from = place.get(t.from);
      t.to = place.get(t.to);
      t.segments = segments.map((s, i) => i).filter(i => segments[i].first >= t.first && segments[i].first + segments[i].n <= t.first + t.n);
    }
    const begin = () => ranks.map((_, r) => segments.map(() => ranks.map((__, who) => who === r ? 1 : 0)));
    const names = t => t.phase === 'circulate'; // whole contributions go around; the chunk's number is whose it is
    const arrive = (state, t) => t.segments.forEach((s, i) => {
      state[t.to][s] = t.adds === false ? t.carried[i] : state[t.to][s].map((have, who) => have + t.carried[i][who]);
    });
    const state = begin();
    for (const round of rounds) {
      for (const t of round.transfers) t.carried = t.segments.map(s => names(t) ? ranks.map((_, who) => who === t.chunk ? 1 : 0) : state[t.from][s].slice());
      for (const t of round.transfers) arrive(state, t);
    }
    const isRight = state.every(row => row.every(counts => counts.every(count => count === 1)));
    const inOrder = rounds.flatMap(round => round.transfers);
    const from = Math.min(...transfers.map(t => t.start)), to = Math.max(...transfers.map(t => t.end));

    const ends = { bytes: rounds.length ? rounds[rounds.length - 1].to : 0, time: to - from };
    const span = { bytes: t => [t.from_bytes, t.to_bytes], time: t => [t.start - from, t.end - from] };

    /* The moment x of a clock: {cells[rank][segment] = counts by contributor, flying, sent[rank], round, is_done}. */
    const at = (clock, x) => {
      const cells = begin(), flying = [], sent = ranks.map(() => 0);
      let round = 0;
      for (const t of inOrder) {
        const [a, b] = span[clock](t), part = x >= b ? 1 : x <= a ? 0 : (x - a) / (b - a);
        sent[t.from] += part * t.bytes;
        if (part > 0) round = Math.max(round, t.round);
        if (part === 1) arrive(cells, t);
        else if (part > 0) flying.push({ ...t, part });
      }
      return { cells, flying, sent, round, is_done: x >= ends[clock] };
    };
    return { algo: op.algo, isRight, n, ranks, segments, rounds, transfers: inOrder, bytes: op.bytes, count, ends, at,
      optimum: op.bytes * 2 * (n - 1) / n, sent: at('bytes', ends.bytes).sent };
  };

  /* Rank r starts with r + 1 in every element, so this is what an element would be. */
  gm.valueOf = counts => gm.sum(counts.map((c, who) => c * (who + 1)));
}
