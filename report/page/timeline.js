/* timeline.js - what each rank did when: a trace, one row for each track of each rank. */
'use strict';

{
  const ROW = 22, FIRST_SPANS = 700;

  const phases = { 'reduce-scatter': 'part-exposed', 'all-gather': 'part-hidden' };
  const colourOf = span => {
    if (span.cat === 'compute') return gm.theme.colour('part-compute');
    if (span.cat === 'send' || span.cat === 'receive') return gm.theme.colour(phases[span.args.phase] || 'span-transfer');
    if (span.cat === 'op') return gm.theme.colour('span-op');
    if (span.cat === 'wait') return gm.theme.colour('part-wait');
    if (span.cat === 'optimizer') return gm.theme.colour('span-optimizer');
    return gm.theme.colour('span-other');
  };

  const describe = span => {
    const a = span.args;
    return gm.tip(`rank ${span.rank}: ${span.name}`, [
      ['takes', gm.us(span.end - span.start)],
      a.algo && ['algorithm', a.algo + (a.dtype ? ', ' + a.dtype : '')],
      gm.isNumber(a.peer) && a.peer >= 0 && [span.cat === 'send' ? 'to' : 'from rank', (span.cat === 'send' ? 'rank ' : '') + a.peer],
      a.phase && ['phase', a.phase + (gm.isNumber(a.step) ? `, step ${a.step}` : '')],
      gm.isNumber(a.chunk) && a.chunk >= 0 && ['chunk', a.chunk],
      gm.isNumber(a.bytes) && ['bytes', gm.number(a.bytes)],
      gm.isNumber(a.wait_us) && ['waiting', gm.us(a.wait_us) + (a.waits_for >= 0 ? ` for rank ${a.waits_for}` : '')],
      gm.isNumber(a.bytes_sent) && ['sent', gm.number(a.bytes_sent) + ' B'], gm.isNumber(a.seq) && ['operation', '#' + a.seq]]);
  };

  /* Tracks of one rank stand together, in the order of their numbers. */
  const rowsOf = trace => {
    const rows = new Map();
    for (const span of trace.spans) rows.set(span.rank * 1000 + span.tid, { rank: span.rank, tid: span.tid, lane: span.lane });
    return [...rows].sort((a, b) => a[0] - b[0]).map(([key, row], i) => ({ ...row, key, i }));
  };

  /* Spans with others inside them on their track: their names would lie under those of the inner ones. */
  const outerOf = spans => {
    const outer = new Set(), last = new Map();
    for (const span of [...spans].sort((a, b) => a.start - b.start || b.end - a.end)) {
      const key = span.rank * 1000 + span.tid, open = last.get(key);
      if (open && span.start < open.end) outer.add(open);
      last.set(key, span);
    }
    return outer;
  };

  gm.sections.push({
    id: 'timeline', title: 'Who did what when?',
    lead: 'Every rank on one clock. Zoom by the slider, by pinching, by Ctrl and the wheel, or by the keys + and −; move by dragging or by the arrow keys.',
    has: data => data.traces.some(trace => trace.spans.length > 0),
    how: 'gradmesh train -n 4 --trace FILE, or gradmesh bench all_reduce -n 4 --trace FILE',
    build(data) {
      /* A training says more than a benchmark; so it is shown first. */
      const isTraining = trace => trace.spans.some(span => span.cat === 'compute');
      let traces = data.traces, name = (traces.find(isTraining) || traces[0]).name, rows = [], shown = null, outer = new Set(), byRow = new Map(), zoom = null, sifted = null, isLive = false, isHeld = false;
      const controls = gm.el('div', { class: 'controls' });
      const key = gm.el('p', { class: 'key' });
      const showKey = () => {
        const has = test => shown.some(test), transfer = phase => s => (s.cat === 'send' || s.cat === 'receive') && s.args.phase === phase;
        const entries = [['part-compute', 'computing', s => s.cat === 'compute'], ['span-optimizer', 'optimizer', s => s.cat === 'optimizer'], ['span-op', 'collective', s => s.cat === 'op'],
          ['part-wait', 'waiting for the last rank', s => s.cat === 'wait' || s.cat === 'op' && s.args.wait_us > 0], ['part-exposed', 'transfer, reduce-scatter', transfer('reduce-scatter')],
          ['part-hidden', 'transfer, all-gather', transfer('all-gather')], ['span-transfer', 'other transfer', s => (s.cat === 'send' || s.cat === 'receive') && !phases[s.args.phase]],
          ['span-other', 'other', s => !['compute', 'optimizer', 'op', 'wait', 'send', 'receive'].includes(s.cat)]];
        key.replaceChildren(...entries.filter(([, , test]) => has(test)).map(([colour, name]) => gm.el('span', {}, gm.el('i', { class: 'swatch', style: `background: var(--${colour})` }), name)));
      };
      const trace = () => traces.find(t => t.name === name) || traces[0];
      const extent = () => [Math.min(...trace().ranks.map(r => trace().spans.find(s => s.rank === r).start)), trace().spans.reduce((end, s) => Math.max(end, s.end), 0)];
      const sift = () => {
        sifted = trace();
        isHeld = false;
        rows = rowsOf(trace());
        byRow = new Map(rows.map(row => [row.key, row.i]));
        shown = trace().spans;
        outer = outerOf(shown);
        showKey();
        const [from, to] = extent(), nth = shown[Math.min(shown.length, FIRST_SPANS) - 1];
        zoom = { from, to: shown.length > FIRST_SPANS ? nth.end : to };
      };
      /* Since the first span, in the unit and with the digits that tell the marks of the axis apart. */
      const moment = at => {
        const length = zoom.to - zoom.from, [unit, us] = length < 5e3 ? ['µs', 1] : length < 5e6 ? ['ms', 1e3] : ['s', 1e6];
        const digits = length / us < 20 ? 1 : 0;
        return `${((at - extent()[0]) / us).toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })}\u00a0${unit}`;
      };
      const setZoom = (from, to, chart) => {
        const [first, end] = extent(), length = Math.min(Math.max(to - from, 5), end - first);
        from = Math.min(Math.max(from, first), end - length);
        zoom = { from, to: from + length };
        isHeld = isLive && length < end - first;
        chart.instance.dispatchAction({ type: 'dataZoom', startValue: zoom.from, endValue: zoom.to });
      };
      const render = (params, api) => {
        const row = api.value(0), start = api.coord([api.value(1), row]), end = api.coord([api.value(2), row]);
        const height = api.size([0, 1])[1] * 0.72, box = params.coordSys;
        const rect = echarts.graphic.clipRectByRect({ x: start[0], y: start[1] - height / 2, width: Math.max(end[0] - start[0], 1), height }, { x: box.x, y: box.y, width: box.width, height: box.height });
        if (!rect) return null;
        const span = shown[params.dataIndexInside !== undefined ? api.value(3) : params.dataIndex], name = span.cat === 'send' || span.cat === 'receive' ? String(span.args.chunk >= 0 ? span.args.chunk : '') : span.name;
        const waits = span.cat === 'op' && span.args.wait_us > 0 ? Math.min(span.end, span.start + span.args.wait_us) : span.start;
        const rectangle = { type: 'rect', shape: { ...rect, r: rect.width > 6 ? 2 : 0 }, style: { fill: colourOf(span) }, emphasis: { style: { stroke: gm.theme.colour('ink'), lineWidth: 1.5 } } };
        if (waits > span.start) {
          const until = api.coord([waits, row]);
          const wait = echarts.graphic.clipRectByRect({ x: start[0], y: start[1] - height / 2, width: until[0] - start[0], height }, { x: box.x, y: box.y, width: box.width, height: box.height });
          if (wait) return { type: 'group', children: [rectangle, { type: 'rect', shape: { ...wait, r: rect.width > 6 ? 2 : 0 }, style: { fill: gm.theme.colour('part-wait') } }] };
        }
        if (rect.width < name.length * 6.5 + 8 || name === '' || outer.has(span)) return { ...rectangle, textContent: false }; // else that of the span that had its place before would stay
        rectangle.textContent = { type: 'text', style: { text: name, fill: gm.textOn(colourOf(span)), fontSize: 11, width: rect.width - 6, overflow: 'truncate' } };
        rectangle.textConfig = { position: 'inside' };
        return rectangle;
      };
      const chart = gm.chart({
        id: 'timeline', title: 'Timeline of the ranks', controls: [controls, key], renderer: 'canvas', exportHeight: 640,
        height: () => 110 + ROW * rows.length,
        note: () => {
          const t = trace();
          if (isLive) return `The last steps, newer ones every few seconds until you look closer; the key 0 goes back to that. The clocks agree to within ${gm.us(t.clock_error_us)}.`;
          const gone = t.other.left_out_events || 0, ranks = `${t.ranks.length} rank${t.ranks.length === 1 ? '' : 's'}`;
          return (gone > 0 ? `The last ${gm.number(t.spans.length)} of ${gm.number(t.spans.length + gone)} spans of ${ranks}: the page holds no more; the file, opened in Perfetto, shows all.` : `${gm.number(t.spans.length)} spans of ${ranks}.`) +
            (t.clock_error_us > 0 ? ` The clocks agree to within ${gm.us(t.clock_error_us)}.` : '') +
            (t.other.dropped_events > 0 ? ` ${gm.number(t.other.dropped_events)} older events did not fit into the ranks’ memory.` : '');
        },
        option(width) {
          const narrow = width < 520;
          return {
            animation: false, grid: { left: narrow ? 76 : 128, right: 14, top: 10, bottom: 74 },
            xAxis: gm.axis('', { type: 'value', min: extent()[0], max: extent()[1], axisLabel: { color: gm.theme.colour('quiet'), hideOverlap: true, formatter: v => moment(v) } }),
            yAxis: gm.axis('', { type: 'category', inverse: true, data: rows.map(r => r.key), axisTick: { show: false }, splitLine: { show: false },
              splitArea: { show: true, areaStyle: { color: rows.map(r => r.rank % 2 === 0 ? gm.theme.colour('hover') : 'transparent') } },
              axisLabel: { color: gm.theme.colour('quiet'), fontSize: 11, interval: 0, formatter: (key, i) => narrow ? `${rows[i].rank} ${rows[i].lane}`.slice(0, 12) : `rank ${rows[i].rank} ${rows[i].lane}` } }),
            dataZoom: [{ type: 'inside', filterMode: 'weakFilter', startValue: zoom.from, endValue: zoom.to, zoomOnMouseWheel: 'ctrl', moveOnMouseWheel: false, minValueSpan: 5 },
              { type: 'slider', filterMode: 'weakFilter', startValue: zoom.from, endValue: zoom.to, bottom: 12, height: 26, brushSelect: false, showDataShadow: false, labelFormatter: v => moment(v), minValueSpan: 5,
                borderColor: gm.theme.colour('line'), fillerColor: gm.theme.colour('filler'), textStyle: { color: gm.theme.colour('quiet') }, handleStyle: { color: gm.theme.colour('card'), borderColor: gm.theme.colour('accent') }, moveHandleStyle: { color: gm.theme.colour('line') } }],
            tooltip: { trigger: 'item', formatter: item => describe(shown[item.value[3]]) },
            series: [{ type: 'custom', renderItem: render, encode: { x: [1, 2], y: 0 }, clip: true,
              data: shown.map((span, i) => [byRow.get(span.rank * 1000 + span.tid), span.start, span.end, i]) }],
          };
        },
        drawn(c) {
          c.instance.off('datazoom');
          c.instance.on('datazoom', () => { const z = c.instance.getOption().dataZoom[0]; zoom = { from: z.startValue, to: z.endValue }; isHeld = isLive; });
        },
        keys(event, c) {
          const length = zoom.to - zoom.from, middle = (zoom.from + zoom.to) / 2;
          if (event.key === 'ArrowLeft') setZoom(zoom.from - length / 4, zoom.to - length / 4, c);
          else if (event.key === 'ArrowRight') setZoom(zoom.from + length / 4, zoom.to + length / 4, c);
          else if (event.key === '+' || event.key === '=') setZoom(middle - length / 3, middle + length / 3, c);
          else if (event.key === '-') setZoom(middle - length * 0.75, middle + length * 0.75, c);
          else if (event.key === '0') { setZoom(...extent(), c); isHeld = false; }
          else return false;
          return true;
        },
        table: () => [['Rank', 'Track', 'What', 'From', 'Takes', 'Bytes', 'Waits'], shown.filter(s => s.end >= zoom.from && s.start <= zoom.to).slice(0, 400).map(s =>
          [s.rank, s.lane, s.name, gm.number(s.start - extent()[0], 7) + '\u00a0µs', gm.us(s.end - s.start), gm.isNumber(s.args.bytes) ? gm.number(s.args.bytes) : '–', gm.isNumber(s.args.wait_us) ? gm.us(s.args.wait_us) + (s.args.waits_for >= 0 ? ` for rank ${s.args.waits_for}` : '') : '–'])],
      });
      /* New spans do not come while somebody looks closer at those that are there. */
      const update = next => {
        isLive = Boolean(next.live) && !next.live.is_over;
        if (isLive && isHeld) return;
        traces = next.traces.filter(t => t.spans.length > 0);
        if (trace() !== sifted) sift();
        controls.replaceChildren(...(traces.length > 1 ? [gm.select('Trace', traces.map(t => [t.name, t.name.split('/').pop()]), name, value => { name = value; sift(); chart.draw(); })] : []));
        chart.draw();
      };
      return { elements: [chart.figure], update };
    },
  });
}
