/* sections.js - the sections that are charts of measured numbers: scaling, split, learning, bandwidth, plan.
 *
 * A section: {id, title, lead, has(data), how (what to run when there are no data), build(data) -> {elements, update(data)}}. */
'use strict';

gm.sections = [];

/* "TCP loopback" setups that occur in these points, those with most points first. */
const setupsOf = points => {
  const several = points.filter(p => p.world_size > 1 && gm.isOurs(p));
  return [...gm.groupBy(several, gm.setup)].sort((a, b) => b[1].length - a[1].length).map(([name]) => name);
};

/* ---- scaling ---- */

gm.sections.push({
  id: 'scaling', title: 'When does it pay?',
  lead: 'The same work, divided among more workers. The dotted grey line is ideal; the dashed line of each colour is what the workers would reach if communication cost nothing on this machine. What is between that line and the measured one is the price of communication.',
  has: data => data.scaling.some(p => gm.isOurs(p) && p.world_size > 1),
  how: 'gradmesh scaling',
  build(data) {
    let points = data.scaling, setup = setupsOf(points)[0];
    const controls = gm.el('div', { class: 'controls' });
    const chosen = () => points.filter(p => p.world_size === 1 || gm.setup(p) === setup || !gm.isOurs(p) && !points.some(q => !gm.isOurs(q) && gm.setup(q) === setup));
    const rowsOf = (regime, ours) => [...new Map(chosen().filter(p => p.regime === regime && gm.isOurs(p) === ours)
      .map(p => [p.world_size, p])).values()].sort((a, b) => a.world_size - b.world_size);
    const shown = () => gm.regimesOf(chosen());
    const chart = gm.chart({
      id: 'scaling', title: 'Speed-up by number of workers', controls,
      height: width => width < 520 ? 400 : 460,
      note: () => `Median step time of one worker divided by that of N, same global batch. ${setup}.` +
        (chosen().some(p => !gm.isOurs(p)) ? ' Diamonds: PyTorch DDP over gloo, against its own single worker.' : ''),
      option(width) {
        const max = Math.max(2, ...chosen().map(p => p.world_size)), series = [];
        const narrow = width < 520;
        series.push({ name: 'ideal', type: 'line', data: [[1, 1], [max, max]], symbol: 'none', silent: true, z: 1,
          lineStyle: { color: gm.theme.colour('quiet'), type: [2, 4], width: 1.5 }, itemStyle: { color: gm.theme.colour('quiet') },
          endLabel: { show: !narrow, formatter: 'ideal', color: gm.theme.colour('quiet') } });
        for (const regime of shown()) {
          const ours = rowsOf(regime, true), colour = gm.regimeColour(regime), peers = rowsOf(regime, false);
          const ceiling = ours.filter(p => gm.isNumber(p.zero_comm_speedup));
          series.push({ name: regime, type: 'line', data: ours.map(p => ({ value: [p.world_size, p.speedup], point: p })), z: 4,
            symbol: 'circle', symbolSize: 9, lineStyle: { color: colour, width: 3 }, itemStyle: { color: colour, borderColor: gm.theme.colour('card'), borderWidth: 1.5 },
            emphasis: { focus: 'none' } });
          series.push({ name: regime, type: 'line', z: 2, symbol: 'none', silent: true,
            data: ceiling.map(p => [p.world_size, p.zero_comm_speedup]), lineStyle: { color: colour, type: [7, 5], width: 1.8, opacity: 0.85 }, itemStyle: { color: colour, opacity: 0.85 } });
          if (peers.length > 0) series.push({ name: regime, type: 'scatter', z: 5, symbol: 'diamond', symbolSize: 13,
            data: peers.map(p => ({ value: [p.world_size, p.speedup], point: p })),
            itemStyle: { color: gm.theme.colour('card'), borderColor: colour, borderWidth: 2 } });
        }
        return {
          grid: { left: 8, right: narrow ? 16 : 56, top: 56, bottom: 34, containLabel: true },
          legend: gm.legend({ icon: 'roundRect', data: shown() }),
          xAxis: gm.axis('workers', { type: 'value', min: 1, max, interval: max <= 8 ? 1 : undefined, minInterval: 1, nameLocation: 'middle', nameGap: 28, splitLine: { show: false } }),
          yAxis: gm.axis('speed-up', { type: 'value', min: 0, nameLocation: 'end', nameTextStyle: { align: 'left', color: gm.theme.colour('quiet') } }),
          tooltip: { trigger: 'item', formatter: item => item.data.point ? scalingTip(item.data.point) : '' },
          series,
        };
      },
      table: () => [['Regime', 'By', 'Workers', 'Step, ms', 'Speed-up', 'No communication', 'Share of it', 'Compute, ms', 'Exposed, ms', 'Hidden, ms', 'Waiting, ms'],
        chosen().slice().sort((a, b) => a.world_size - b.world_size).sort((a, b) => gm.regimeOrder.indexOf(a.regime) - gm.regimeOrder.indexOf(b.regime))
          .map(p => [p.regime, gm.peerOf(p), p.world_size, gm.fixed(p.median_ms, 2), gm.fixed(p.speedup, 2), gm.fixed(p.zero_comm_speedup, 2),
            gm.percent(p.speedup / p.zero_comm_speedup), gm.fixed(p.compute_ms, 2), gm.fixed(p.comm_exposed_ms, 2), gm.fixed(p.comm_hidden_ms, 2), gm.fixed(p.wait_ms, 2)])],
    });
    const update = next => {
      points = next.scaling;
      const setups = setupsOf(points);
      if (!setups.includes(setup)) setup = setups[0];
      controls.replaceChildren(...(setups.length > 1 ? [gm.select('Setup', setups.map(s => [s, s]), setup, value => { setup = value; chart.draw(); })] : []));
      chart.draw();
    };
    return { elements: [chart.figure], update };
  },
});

const scalingTip = p => gm.tip(`${gm.peerOf(p)}, ${p.regime}, ${p.world_size === 1 ? 'one worker' : p.world_size + ' workers'}`, [
  ['step', gm.ms(p.median_ms)], ['speed-up', gm.times(p.speedup)],
  gm.isNumber(p.zero_comm_speedup) && ['without communication', gm.times(p.zero_comm_speedup)],
  gm.isNumber(p.zero_comm_speedup) && ['share of that', gm.percent(p.speedup / p.zero_comm_speedup)],
  gm.isNumber(p.samples_per_s) && ['samples/s', gm.number(p.samples_per_s)], ['batch', gm.number(p.batch)]]);

/* ---- split ---- */

const parts = [['compute_ms', 'computing', 'part-compute'], ['comm_hidden_ms', 'communication, hidden', 'part-hidden'],
  ['comm_exposed_ms', 'communication, exposed', 'part-exposed'], ['wait_ms', 'waiting', 'part-wait']];

/* What can be split: [{name, rows: [{label, compute_ms, ...}], note}]. */
const splitSources = data => {
  const sources = [];
  for (const trace of data.traces) {
    const rows = gm.traceSplit(trace);
    const steps = Math.max(1, trace.spans.filter(s => s.rank === rows[0]?.rank && s.cat === 'optimizer').length);
    if (rows.length > 0) sources.push({ name: `trace ${trace.name.split('/').pop()}`, note: `Milliseconds of a step, the mean of ${steps} traced steps.`,
      rows: rows.map(r => ({ label: `rank ${r.rank}`, ...Object.fromEntries(parts.map(([key]) => [key, r[key] / steps])) })) });
  }
  const points = data.scaling.filter(p => gm.isOurs(p) && Array.isArray(p.by_rank) && p.by_rank.length > 0 && p.world_size > 1);
  const several = gm.unique(points.map(gm.setup)).length > 1;
  for (const p of points.slice().sort((a, b) => a.world_size - b.world_size).sort((a, b) => gm.regimeOrder.indexOf(a.regime) - gm.regimeOrder.indexOf(b.regime)))
    sources.push({ name: `${p.regime}, ${p.world_size} workers${several ? ', ' + gm.setup(p) : ''}`, note: `Milliseconds of a step of ${gm.ms(p.median_ms)} (median), ${gm.setup(p)}.`,
      rows: p.by_rank.map(r => ({ label: `rank ${r.rank}`, ...r })) });
  for (const run of data.train) {
    const name = run.name === 'training' ? run.name : `training ${run.name.split('/').pop()}`, each = gm.trainSplitByRank(run, 10), split = gm.trainSplit(run);
    if (each) sources.push({ name, note: `Milliseconds of a step, the mean of steps ${gm.number(each.from)} to ${gm.number(each.to)}.`,
      rows: each.ranks.map(r => ({ label: `rank ${r.rank}`, ...r })) });
    else if (split.n_steps > 0) sources.push({ name, note: 'Milliseconds of a step, the mean of all steps, as rank 0 saw them; a trace shows each rank.',
      rows: [{ label: 'rank 0', ...Object.fromEntries(parts.map(([key]) => [key, split[key] / split.n_steps])) }] });
  }
  return sources;
};

gm.sections.push({
  id: 'split', title: 'Where does a step go?',
  lead: 'All-reduce makes every rank’s step equally long and so hides the slow one. Waiting is therefore told apart from communication: a rank waits until the last one has arrived. The rank that waits least is the one that the others wait for.',
  has: data => splitSources(data).length > 0,
  how: 'gradmesh scaling, or gradmesh train --trace FILE',
  build(data) {
    let sources = splitSources(data), name = sources[0].name;
    const controls = gm.el('div', { class: 'controls' });
    const chosen = () => sources.find(s => s.name === name) || sources[0];
    const chart = gm.chart({
      id: 'split', title: 'A step of each rank', controls, note: () => chosen().note,
      height: () => 110 + 44 * chosen().rows.length,
      option: width => ({
        grid: { left: 8, right: 24, top: width < 520 ? 40 : 44, bottom: 30, containLabel: true },
        legend: gm.legend(),
        xAxis: gm.axis('ms', { type: 'value', min: 0, nameLocation: 'middle', nameGap: 26 }),
        yAxis: gm.axis('', { type: 'category', data: chosen().rows.map(r => r.label), inverse: true, axisTick: { show: false } }),
        tooltip: { trigger: 'axis', axisPointer: { type: 'shadow', shadowStyle: { color: gm.theme.colour('hover') } },
          formatter: items => {
            const row = chosen().rows[items[0].dataIndex], total = gm.sum(parts.map(([key]) => row[key] || 0));
            return gm.tip(row.label, parts.map(([key, title, colour]) => [title, `${gm.ms(row[key] || 0)}, ${gm.percent((row[key] || 0) / total)}`, gm.theme.colour(colour)]));
          } },
        series: parts.map(([key, title, colour]) => ({ name: title, type: 'bar', stack: 'step', barMaxWidth: 26, data: chosen().rows.map(r => r[key] || 0),
          itemStyle: { color: gm.theme.colour(colour), borderColor: gm.theme.colour('card'), borderWidth: 1 }, emphasis: { disabled: true } })),
      }),
      table: () => [['Rank', ...parts.map(([, title]) => title + ', ms')], chosen().rows.map(r => [r.label, ...parts.map(([key]) => gm.fixed(r[key] || 0, 3))])],
    });
    const update = next => {
      sources = splitSources(next);
      if (!sources.some(s => s.name === name)) name = sources[0].name;
      controls.replaceChildren(...(sources.length > 1 ? [gm.select('Of', sources.map(s => [s.name, s.name]), name, value => { name = value; chart.draw(); })] : []));
      chart.draw();
    };
    return { elements: [chart.figure], update };
  },
});

/* ---- learning ---- */

gm.sections.push({
  id: 'learning', title: 'Did it learn?',
  lead: 'The loss on the samples it trains on, and the share of test samples that it reads right after each epoch.',
  has: data => data.train.some(run => run.steps.length > 0),
  how: 'make run, or gradmesh train --log FILE',
  build(data) {
    let runs = data.train;
    const shown = () => runs.filter(run => run.steps.length > 0);
    const chart = gm.chart({
      id: 'learning', title: 'Loss and accuracy', height: width => width < 520 ? 340 : 400,
      note: () => shown().map(run => `${run.name.split('/').pop()}: ${run.start.layers ? run.start.layers.replaceAll(',', '-') + ', ' : ''}${run.start.world_size || '?'} workers, batch ${run.start.batch || '?'}`).join(' · '),
      option(width) {
        const many = shown().length > 1;
        const series = shown().flatMap((run, i) => {
          const name = many ? ` (${run.name.split('/').pop()})` : '';
          return [
            { name: 'loss' + name, type: 'line', showSymbol: false, sampling: 'lttb', data: run.steps.map(s => [s.step, s.loss]), lineStyle: { width: 2, color: gm.theme.rank(2 * i) }, itemStyle: { color: gm.theme.rank(2 * i) } },
            { name: 'test accuracy' + name, type: 'line', yAxisIndex: 1, symbol: 'circle', symbolSize: 8, data: run.epochs.filter(e => gm.isNumber(e.test_accuracy)).map(e => [e.step, 100 * e.test_accuracy]),
              lineStyle: { width: 2, color: gm.theme.rank(2 * i + 1) }, itemStyle: { color: gm.theme.rank(2 * i + 1), borderColor: gm.theme.colour('card'), borderWidth: 1.5 } }];
        });
        return {
          grid: { left: 8, right: 8, top: 56, bottom: 34, containLabel: true }, legend: gm.legend(),
          xAxis: gm.axis('step', { type: 'value', min: 0, max: 'dataMax', nameLocation: 'middle', nameGap: 28, splitLine: { show: false } }),
          yAxis: [gm.axis('loss', { type: 'value', min: 0, nameTextStyle: { align: 'left', color: gm.theme.colour('quiet') } }),
            gm.axis('% right', { type: 'value', max: 100, min: v => Math.max(0, Math.floor((v.min - (100 - v.min) * 0.5) / 2) * 2), splitLine: { show: false }, nameTextStyle: { align: 'right', color: gm.theme.colour('quiet') } })],
          dataZoom: [{ type: 'inside', filterMode: 'none', zoomOnMouseWheel: 'ctrl', moveOnMouseWheel: false }],
          tooltip: { trigger: 'axis', axisPointer: { lineStyle: { color: gm.theme.colour('axis') } },
            formatter: items => gm.tip('step ' + gm.number(items[0].value[0]), items.map(item => [item.seriesName, item.seriesName.startsWith('loss') ? gm.fixed(item.value[1], 4) : gm.fixed(item.value[1], 2) + ' %', item.color])) },
          series,
        };
      },
      table: () => [['Run', 'Epoch', 'Step', 'Loss', 'Test loss', 'Test accuracy', 'Samples/s'], runs.flatMap(run => run.epochs.map(e => [run.name, e.epoch + 1, gm.number(e.step), gm.fixed(e.loss, 4), gm.fixed(e.test_loss, 4),
        gm.percent(e.test_accuracy, 2), gm.number((run.steps.filter(s => s.step <= e.step).pop() || {}).samples_per_s)]))],
    });
    return { elements: [chart.figure], update: next => { runs = next.train; chart.draw(); } };
  },
});

/* ---- bandwidth ---- */

/* Where the same case was measured with peers: our median against the best of theirs. */
gm.peerRatios = rows => [...gm.groupBy(rows.filter(r => r.collective === 'all_reduce'), r => [r.set, r.world_size, r.size_bytes].join('|')).values()]
  .map(group => {
    const systems = [...gm.groupBy(group, r => r.system)].map(([system, list]) => ({ system, us: gm.median(list.map(r => r.median_us)) }));
    const own = systems.find(s => s.system === 'gradmesh'), others = systems.filter(s => s.system !== 'gradmesh').sort((a, b) => a.us - b.us);
    return own && others.length > 0 ? { world_size: group[0].world_size, size_bytes: group[0].size_bytes, ratio: others[0].us / own.us, peer: others[0].system } : null;
  }).filter(Boolean);

const busGBps = row => gm.isNumber(row.busbw_GBps) ? row.busbw_GBps
  : row.size_bytes / row.median_us / 1000 * 2 * (row.world_size - 1) / row.world_size;

gm.sections.push({
  id: 'bandwidth', title: 'How fast is all-reduce?',
  lead: 'Bus bandwidth is what each rank’s link would have to carry: size ÷ time × 2(N−1)/N. It does not depend on the number of ranks, so it can be compared with what the machine carries at most.',
  has: data => data.bench.length + data.peers.length > 0,
  how: 'gradmesh bench all_reduce -n 4 --json=FILE, gradmesh bench limits --quick --json=FILE, make bench-peers',
  build(data) {
    let rows = [], limit = null, world = null;
    const controls = gm.el('div', { class: 'controls' });
    const systemColour = system => gm.theme.colour('system-' + system) || gm.theme.rank(5);
    const lines = () => [...gm.groupBy(rows.filter(r => r.world_size === world), r => r.line)].map(([line, list]) => ({ line, system: list[0].system, algo: list[0].algo,
      points: [...gm.groupBy(list, r => r.size_bytes)].map(([size, same]) => ({ size, GBps: gm.median(same.map(busGBps)), us: gm.median(same.map(r => r.median_us)), runs: same.length, ran: same[0].ran })).sort((a, b) => a.size - b.size) }))
      .sort((a, b) => (a.system !== 'gradmesh') - (b.system !== 'gradmesh') || a.line.localeCompare(b.line));
    const chart = gm.chart({
      id: 'bandwidth', title: 'Bus bandwidth of all-reduce by size', controls, height: width => width < 520 ? 380 : 420,
      note: () => `${world} ranks, median time of the slowest rank.` + (limit ? ` Dashed: what two processes exchange at once over plain TCP sockets here, ${gm.number(limit)} GB/s each way.` : ''),
      option(width) {
        const shapes = ['diamond', 'triangle', 'rect', 'pin', 'arrow'], inColour = {};
        const series = lines().map(({ line, system, points }, i) => {
          const own = system === 'gradmesh', colour = own && i > 0 ? gm.theme.rank(i) : systemColour(system);
          const nth = inColour[colour] = (inColour[colour] ?? -1) + 1; /* the same colour again: another shape, and dashed */
          return { name: line, type: 'line', z: own ? 4 : 3, symbol: own ? 'circle' : shapes[nth % shapes.length], symbolSize: own ? 8 : 9, data: points.map(p => ({ value: [p.size, p.GBps], p })),
            lineStyle: { width: own ? 3 : 1.8, color: colour, type: !own && nth > 0 ? [3 + 2 * nth, 3] : 'solid' }, itemStyle: { color: colour }, emphasis: { focus: 'none' } };
        });
        if (limit && series.length > 0) series[0].markLine = { silent: true, symbol: 'none', data: [{ yAxis: limit }],
          lineStyle: { color: gm.theme.colour('quiet'), type: 'dashed', width: 1.5 }, label: { formatter: 'limit', position: 'insideEndTop', color: gm.theme.colour('quiet') } };
        return {
          grid: { left: 8, right: 20, top: 56, bottom: 34, containLabel: true }, legend: gm.legend(),
          xAxis: gm.axis('size', { type: 'log', logBase: 2, nameLocation: 'middle', nameGap: 28, splitLine: { show: false },
            axisLabel: { color: gm.theme.colour('quiet'), hideOverlap: true, formatter: v => gm.size(v) } }),
          yAxis: gm.axis('GB/s', { type: 'value', min: 0, max: limit ? v => Math.max(v.max, limit) * 1.05 : undefined, axisLabel: { color: gm.theme.colour('quiet'), showMaxLabel: !limit, formatter: v => gm.number(v, 2) }, nameTextStyle: { align: 'left', color: gm.theme.colour('quiet') } }),
          tooltip: { trigger: 'item', formatter: item => gm.tip(`${item.seriesName}, ${gm.size(item.data.p.size)}`, [['bus bandwidth', gm.number(item.data.p.GBps) + ' GB/s'], ['time', gm.us(item.data.p.us)], item.data.p.ran && ['algorithm', item.data.p.ran]]) },
          series,
        };
      },
      table: () => [['By', 'Ranks', 'Size', 'Time', 'Bus bandwidth, GB/s', 'Of the limit'], lines().flatMap(l => l.points.map(p => [l.line, world, gm.size(p.size), gm.us(p.us), gm.number(p.GBps), limit ? gm.percent(p.GBps / limit) : '–']))],
    });
    const update = next => {
      limit = next.limits && next.limits.duplex_GBps;
      const reduce = r => r.collective === 'all_reduce' && r.in_place !== false;
      const tcp = r => r.set === undefined || r.set === 'tcp';
      const bench = next.bench.filter(r => r.collective === 'all_reduce');
      const inPlace = bench.some(r => r.in_place) ? bench.filter(r => r.in_place) : bench;
      rows = next.peers.filter(r => reduce(r) && tcp(r)).map(r => ({ ...r, line: r.system }))
        .concat(inPlace.map(r => ({ ...r, line: ['gradmesh', ...[r.algo, r.transport].filter(name => name && name !== 'auto'), r.wire && r.wire !== 'f32' ? r.wire : ''].filter(Boolean).join(', ') })));
      const all = gm.unique(rows.map(r => r.world_size)).sort((a, b) => a - b);
      if (!all.includes(world)) world = all[all.length - 1];
      controls.replaceChildren(...(all.length > 1 ? [gm.select('Ranks', all.map(n => [String(n), String(n)]), String(world), value => { world = Number(value); chart.draw(); })] : []));
      chart.draw();
    };
    return { elements: [chart.figure], update };
  },
});

/* ---- plan ---- */

gm.sections.push({
  id: 'plan', title: 'Is the planner right?',
  lead: 'What the planner predicted from a few seconds of measuring the machine, before any of these points was run, beside what was measured then.',
  has: data => data.plans.some(plan => plan.points.length > 0),
  how: 'gradmesh plan --verify',
  build(data) {
    let plan = data.plans[data.plans.length - 1];
    const label = p => [p.regime, p.network, p.transport, p.wire && p.wire !== 'f32' ? p.wire : null, p.world_size === 1 ? '1 worker' : `${p.world_size} workers`].filter(Boolean).join(', ');
    /* Two lines on a phone. */
    const shortLabel = p => `${p.regime}, ${p.world_size}\n` + [p.network, p.transport, p.wire && p.wire !== 'f32' ? p.wire : null].filter(Boolean).join(', ');
    const measured = () => plan.points.some(p => gm.isNumber(p.measured_ms));
    const chart = gm.chart({
      id: 'plan', title: 'Predicted and measured step time', height: () => 120 + 42 * plan.points.length,
      note: () => measured() ? 'The label is how far the prediction is off: + predicted too long, − too short. The number beside a regime is that of workers.' : 'Predicted only; gradmesh plan --verify measures the points that fit on this machine.',
      option: width => ({
        grid: { left: 8, right: 70, top: 44, bottom: 34, containLabel: true }, legend: gm.legend(),
        xAxis: gm.axis('ms a step', { type: 'value', min: 0, nameLocation: 'middle', nameGap: 28 }),
        yAxis: gm.axis('', { type: 'category', inverse: true, data: plan.points.map(width < 520 ? shortLabel : label), axisTick: { show: false }, axisLabel: { color: gm.theme.colour('quiet'), width: width < 520 ? 130 : 320, overflow: 'truncate', fontSize: 12, lineHeight: 14 } }),
        tooltip: { trigger: 'axis', axisPointer: { type: 'shadow', shadowStyle: { color: gm.theme.colour('hover') } },
          formatter: items => {
            const p = plan.points[items[0].dataIndex];
            return gm.tip(label(p), [['predicted', gm.ms(p.predicted_ms), gm.theme.colour('predicted')], gm.isNumber(p.measured_ms) && ['measured', gm.ms(p.measured_ms), gm.theme.colour('measured')],
              gm.isNumber(p.predicted_speedup) && ['predicted speed-up', gm.times(p.predicted_speedup)], ['pays', p.pays ? 'yes' : 'no']]);
          } },
        series: [
          { name: 'predicted', type: 'bar', barMaxWidth: 13, data: plan.points.map(p => p.predicted_ms), itemStyle: { color: gm.theme.colour('predicted') }, emphasis: { disabled: true } },
          ...(measured() ? [{ name: 'measured', type: 'bar', barMaxWidth: 13, itemStyle: { color: gm.theme.colour('measured') }, emphasis: { disabled: true },
            data: plan.points.map(p => gm.isNumber(p.measured_ms) ? p.measured_ms : null),
            label: { show: true, position: 'right', color: gm.theme.colour('ink'), formatter: item => { const p = plan.points[item.dataIndex]; const e = p.predicted_ms / p.measured_ms - 1; const off = Math.abs(100 * e).toFixed(0); return (off === '0' ? '' : e > 0 ? '+' : '−') + off + ' %'; } } }] : [])],
      }),
      table: () => [['Point', 'Predicted, ms', 'Measured, ms', 'Off by', 'Predicted speed-up', 'Pays'], plan.points.map(p => [label(p), gm.fixed(p.predicted_ms, 2), gm.fixed(p.measured_ms, 2), gm.percent(p.predicted_ms / p.measured_ms - 1), gm.fixed(p.predicted_speedup, 2), p.pays ? 'yes' : 'no'])],
    });
    return { elements: [chart.figure], update: next => { plan = next.plans[next.plans.length - 1]; chart.draw(); } };
  },
});
