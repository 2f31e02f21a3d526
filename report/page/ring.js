/* ring.js - the recorded all-reduce as an animation: one panel for each algorithm, all on the same clock.
 *
 * A panel is one SVG without style classes, so that it can be saved as it is. Each rank is a bar that is cut like the
 * recorded transfers cut the buffer; each piece has one stripe for each rank whose contribution it may hold. */
'use strict';

{
  const PLAY_SECONDS = 16;
  const titles = { ring: 'Ring', naive: 'Naive: whole buffers' };
  const titleOf = algo => titles[algo] || algo.charAt(0).toUpperCase() + algo.slice(1);
  const c = name => gm.theme.colour(name);
  const text = (x, y, size, colour, more, words) => gm.svg('text', { x, y, 'font-size': size, fill: colour, 'font-family': FONT, ...more }, words);

  /* ---- a panel ---- */

  const layout = (replay, width) => {
    const n = replay.n, small = width < 420, barWidth = Math.min(190, width * (n <= 4 ? 0.37 : n <= 6 ? 0.27 : 0.2)), barHeight = Math.max(26, Math.min(40, 10 * n));
    const top = 76, fieldHeight = n <= 2 ? 120 : small ? 230 : n <= 4 ? 250 : 330, cardHeight = barHeight + 42;
    const rx = (width - barWidth) / 2 - 4, ry = (fieldHeight - cardHeight) / 2, cx = width / 2, cy = top + fieldHeight / 2;
    const corner = n === 4 ? Math.SQRT2 : 1;
    const cards = replay.ranks.map((rank, i) => {
      const angle = (-90 - 180 / n + i * 360 / n) * Math.PI / 180;
      return { rank, x: cx + Math.min(1, Math.max(-1, Math.cos(angle) * corner)) * rx - barWidth / 2, y: cy + Math.min(1, Math.max(-1, Math.sin(angle) * corner)) * ry - cardHeight / 2 + 20 };
    });
    const barsTop = top + fieldHeight + 34, rowHeight = n > 8 ? 15 : 20;
    return { n, width, small, barWidth, barHeight, cards, cx, cy, barsTop, rowHeight, height: barsTop + n * rowHeight + 44 };
  };

  const segmentBox = (l, replay, rank, s) => {
    const segment = replay.segments[s], scale = l.barWidth / replay.count;
    return { x: l.cards[rank].x + segment.first * scale, y: l.cards[rank].y, width: segment.n * scale, height: l.barHeight };
  };

  /* A piece of a buffer: stripes of those whose contribution it holds. Returns a function that shows other counts. */
  const piece = (box, n, colours, gap) => {
    const stripe = box.height / n, width = Math.max(0.5, box.width - gap);
    const rects = colours.map((colour, i) => gm.svg('rect', { x: box.x + gap / 2, y: box.y + i * stripe, width, height: stripe + 0.4, fill: colour, opacity: 0 }));
    const label = box.width >= 18 && box.height >= 20
      ? text(box.x + box.width / 2, box.y + box.height + 14, 12, c('ink'), { 'text-anchor': 'middle', 'font-variant-numeric': 'tabular-nums' }, '') : null;
    let before = '';
    return { elements: [...rects, label].filter(Boolean), show(counts) {
      const now = counts.join();
      if (now === before) return;
      before = now;
      counts.forEach((count, i) => rects[i].setAttribute('opacity', count > 0 ? 1 : 0));
      if (!label) return;
      const full = counts.every(count => count === 1);
      label.textContent = gm.valueOf(counts);
      label.setAttribute('font-weight', full ? 700 : 400);
      label.setAttribute('fill', full ? c('ink') : c('quiet'));
    } };
  };

  const drawCards = (root, l, replay, colours) => l.cards.map((card, r) => {
    root.append(gm.svg('circle', { cx: card.x + 3, cy: card.y - 13, r: 5, fill: colours[r] }),
      text(card.x + 14, card.y - 8, 13, c('ink'), { 'font-weight': 600 }, `rank ${card.rank}`),
      gm.svg('rect', { x: card.x - 3, y: card.y - 3, width: l.barWidth + 6, height: l.barHeight + 6, rx: 5, fill: c('track'), stroke: c('line') }));
    return replay.segments.map((_, s) => {
      const one = piece(segmentBox(l, replay, r, s), l.n, colours, replay.segments.length > 24 ? 0.5 : 2);
      root.append(...one.elements);
      return one;
    });
  });

  const drawLinks = (root, l, replay) => {
    const pairs = gm.unique(replay.transfers.map(t => t.from + ':' + t.to)).map(p => p.split(':').map(Number));
    for (const [a, b] of pairs.length <= 4 * l.n ? pairs : []) {
      const from = centre(l, a), to = centre(l, b);
      root.append(gm.svg('line', { x1: from.x, y1: from.y, x2: to.x, y2: to.y, stroke: c('line'), 'stroke-width': 2, 'stroke-dasharray': '2 5', 'stroke-linecap': 'round' }));
    }
  };
  const centre = (l, r) => ({ x: l.cards[r].x + l.barWidth / 2, y: l.cards[r].y + l.barHeight / 2 });

  const drawBars = (root, l, replay, colours, most) => {
    const left = 58, right = 86, width = l.width - left - right, scale = width / most;
    root.append(text(0, l.barsTop - 10, 12, c('quiet'), {}, 'bytes sent by each rank'));
    const mark = left + replay.optimum * scale;
    const rows = replay.ranks.map((rank, r) => {
      const y = l.barsTop + r * l.rowHeight;
      const bar = gm.svg('rect', { x: left, y: y + 3, width: 0, height: l.rowHeight - 7, rx: 2, fill: colours[r] });
      const figure = text(l.width, y + l.rowHeight - 6, 12, c('ink'), { 'text-anchor': 'end', 'font-variant-numeric': 'tabular-nums' }, '');
      root.append(text(0, y + l.rowHeight - 6, 12, c('quiet'), {}, `rank ${rank}`), gm.svg('rect', { x: left, y: y + 3, width, height: l.rowHeight - 7, rx: 2, fill: c('track') }), bar, figure);
      return { show(bytes) { bar.setAttribute('width', Math.max(0, bytes * scale)); figure.textContent = gm.bytes(bytes); } };
    });
    const bottom = l.barsTop + l.n * l.rowHeight;
    root.append(gm.svg('line', { x1: mark, x2: mark, y1: l.barsTop - 2, y2: bottom + 4, stroke: c('ink'), 'stroke-width': 1.5 }),
      text(Math.min(mark, l.width - 2), bottom + 19, 12, c('quiet'), { 'text-anchor': mark < 130 ? 'start' : mark > l.width - 130 ? 'end' : 'middle' }, `least possible: ${gm.bytes(replay.optimum)}`));
    return rows;
  };

  /* {svg, show(clock, x), resize(width)} */
  const panel = (replay, mostBytes) => {
    const svg = gm.svg('svg', { role: 'img', class: 'ring-panel', xmlns: 'http://www.w3.org/2000/svg' });
    let parts = null, last = ['bytes', 0];
    const build = width => {
      const l = layout(replay, Math.max(272, width)), colours = replay.ranks.map((_, i) => gm.theme.rank(i));
      svg.setAttribute('viewBox', `0 0 ${l.width} ${l.height}`);
      svg.setAttribute('width', l.width);
      svg.setAttribute('height', l.height);
      svg.replaceChildren();
      svg.append(text(0, 18, 17, c('ink'), { 'font-weight': 650 }, titleOf(replay.algo)));
      const step = text(0, 39, 13, c('quiet'), { 'font-variant-numeric': 'tabular-nums' }, '');
      svg.append(step);
      drawLinks(svg, l, replay);
      const cells = drawCards(svg, l, replay, colours), flying = gm.svg('g', {});
      svg.append(flying);
      parts = { l, colours, step, cells, flying, bars: drawBars(svg, l, replay, colours, mostBytes) };
    };
    /* What flies moves from its place in the sender's bar to the same place in the receiver's. */
    const showFlying = moment => {
      const { l, colours, flying } = parts;
      flying.replaceChildren(...moment.flying.flatMap(t => t.segments.map((s, i) => {
        const a = segmentBox(l, replay, t.from, s), b = segmentBox(l, replay, t.to, s), part = t.part;
        const box = { x: a.x + (b.x - a.x) * part, y: a.y + (b.y - a.y) * part, width: Math.max(5, a.width), height: a.height };
        const token = piece(box, l.n, colours, 2);
        token.show(t.carried[i]);
        return gm.svg('g', {}, gm.svg('rect', { x: box.x - 1, y: box.y - 2, width: box.width + 2, height: box.height + 4, rx: 4, fill: c('card'), stroke: c('ink'), 'stroke-width': 1.2 }), token.elements.filter(e => e.tagName === 'rect'));
      })));
    };
    const describe = moment => {
      const round = replay.rounds[moment.round];
      if (moment.is_done) return replay.isRight ? 'done: every rank holds every sum' : 'done, but the sums are not complete';
      return round.phase ? `${round.phase}, ${round.name}` : round.name;
    };
    const show = (clock, x) => {
      last = [clock, x];
      const moment = replay.at(clock, x);
      moment.cells.forEach((row, r) => row.forEach((counts, s) => parts.cells[r][s].show(counts)));
      showFlying(moment);
      moment.sent.forEach((bytes, r) => parts.bars[r].show(bytes));
      parts.step.textContent = describe(moment);
      svg.setAttribute('aria-label', `${titleOf(replay.algo)}, ${describe(moment)}; sent so far: ${moment.sent.map((b, r) => `rank ${replay.ranks[r]} ${gm.bytes(b)}`).join(', ')}`);
    };
    return { replay, svg, show, resize(width) { build(width); show(...last); } };
  };

  gm.panelSvg = one => {
    const copy = one.svg.cloneNode(true);
    copy.removeAttribute('class');
    copy.prepend(gm.svg('rect', { x: -16, y: -16, width: parseFloat(one.svg.getAttribute('width')) + 32, height: parseFloat(one.svg.getAttribute('height')) + 32, fill: c('card') }));
    const width = Number(one.svg.getAttribute('width')) + 32, height = Number(one.svg.getAttribute('height')) + 32;
    copy.setAttribute('viewBox', `-16 -16 ${width} ${height}`);
    copy.setAttribute('width', width);
    copy.setAttribute('height', height);
    return { text: new XMLSerializer().serializeToString(copy), width, height };
  };

  /* ---- what can be shown ---- */

  /* Sets of operations that belong together: the same number of ranks and bytes, ring first. */
  const setsOf = data => {
    const order = algo => ({ ring: 0, naive: 9 })[algo] ?? 5;
    const groups = gm.groupBy(gm.replayable(data), ({ trace, op }) => trace.world_size + ':' + op.bytes);
    return [...groups].map(([key, list]) => {
      const byAlgo = [...gm.groupBy(list, ({ op }) => op.algo).values()].map(same => same[same.length - 1]).sort((a, b) => order(a.op.algo) - order(b.op.algo));
      return { key, list: byAlgo, bytes: list[0].op.bytes, n: list[0].trace.world_size };
    }).sort((a, b) => b.list.length - a.list.length || (b.list[0].op.algo === 'ring') - (a.list[0].op.algo === 'ring') || b.bytes - a.bytes);
  };

  /* ---- the player ---- */

  gm.sections.push({
    id: 'ring', title: 'Why the ring is optimal',
    lead: 'A recorded all-reduce, played again. Every rank starts with its own contribution (one colour) to each chunk. In the reduce-scatter a chunk travels around and is added up; then each rank owns one finished chunk, and in the all-gather the finished chunks travel around. So each rank sends 2(N−1)/N of the data. Less is impossible: to bring the N contributions to an element together takes N−1 transfers, to hand the sum to all another N−1, and the ring shares them equally among N ranks.',
    has: data => gm.replayable(data).length > 0,
    how: 'gradmesh bench all_reduce -n 4 --sizes 256K --algo ring --trace FILE, and the same with --algo naive',
    build(data) {
      let sets = setsOf(data), set = sets[0], panels = [], clock = 'bytes', at = 0, speed = 1, playing = false, frame = 0, before = 0;
      const stage = gm.el('div', { class: 'stage' });
      const play = gm.el('button', { type: 'button', class: 'primary', onclick: () => playing ? stop() : start() }, 'Play');
      const scrub = gm.el('input', { type: 'range', min: 0, max: 1000, value: 0, 'aria-label': 'Position', oninput: () => { stop(); seek(scrub.value / 1000); } });
      const choices = gm.el('div', { class: 'controls' });
      const note = gm.el('p', { class: 'note' });
      const table = gm.el('details', { class: 'data' }, gm.el('summary', {}, 'The figures as a table'));
      const tools = gm.el('div', { class: 'tools' }, [['SVG', one => gm.saveSvg(one.replay.algo, gm.panelSvg(one).text)],
        ['PNG', one => { const p = gm.panelSvg(one); gm.savePng(one.replay.algo, p.text, p.width, p.height); }]].map(([name, save]) =>
        gm.el('button', { type: 'button', class: 'plain', 'aria-label': `Save the animation's picture as ${name}`, onclick: () => panels.forEach(save) }, name)));
      const figure = gm.el('figure', { class: 'card', id: 'chart-ring' }, gm.el('figcaption', {}, gm.el('div', { class: 'head' }, gm.el('h3', {}, 'All-reduce, chunk by chunk'), tools), note),
        stage, gm.el('div', { class: 'player' }, play, scrub), choices, table);

      const end = () => Math.max(...panels.map(p => p.replay.ends[clock]));
      const seek = part => {
        at = Math.min(1, Math.max(0, part));
        for (const p of panels) p.show(clock, at * end());
        scrub.value = Math.round(at * 1000);
        scrub.setAttribute('aria-valuetext', `${gm.percent(at)}`);
      };
      const tick = now => {
        if (!playing) return;
        seek(at + (now - before) / 1000 / PLAY_SECONDS * speed);
        before = now;
        if (at >= 1) stop(); else frame = requestAnimationFrame(tick);
      };
      const start = () => {
        if (at >= 1) at = 0;
        playing = true;
        play.textContent = 'Pause';
        before = performance.now();
        frame = requestAnimationFrame(tick);
      };
      const stop = () => {
        playing = false;
        play.textContent = at >= 1 ? 'Play again' : 'Play';
        cancelAnimationFrame(frame);
      };
      const resize = () => {
        const wide = stage.clientWidth;
        if (wide === 0) return;
        const side = panels.length > 1 && wide >= 760, gap = 40;
        stage.classList.toggle('side', side);
        for (const p of panels) p.resize(Math.min(620, side ? (wide - gap * (panels.length - 1)) / panels.length : wide));
        seek(at);
      };
      /* What the difference comes to, from the recorded bytes. */
      const comparison = () => {
        const most = algo => { const p = panels.find(one => one.replay.algo === algo); return p ? Math.max(...p.replay.sent) : 0; };
        const ring = most('ring'), ratio = most('naive') / ring;
        if (!ring || !ratio) return '';
        return Math.abs(ratio - 1) < 0.01 ? ` With ${set.n} ranks the ring and the naive way send the same; from three on the ring sends less.`
          : ` A rank of the ring sent ${gm.bytes(ring)}; naively it was ${gm.number(ratio)} times as much.`;
      };
      const setUp = () => {
        const replays = set.list.map(({ trace, op }) => gm.replay(trace, op));
        const most = Math.max(...replays.flatMap(r => [...r.sent, r.optimum])) * 1.02;
        panels = replays.map(replay => panel(replay, most));
        stage.replaceChildren(...panels.map(p => p.svg));
        note.textContent = `${gm.size(set.bytes)} over ${set.n} ranks, from ${gm.listed(gm.unique(set.list.map(({ trace }) => trace.name.split('/').pop())))}. Under a chunk stands what an element of it would be if rank r had begun with r + 1: ${set.n * (set.n + 1) / 2} when all contributions are in it.` + comparison();
        choices.replaceChildren(
          ...(sets.length > 1 ? [gm.select('What', sets.map(s => [s.key, `${gm.size(s.bytes)}, ${s.n} ranks: ${s.list.map(o => o.op.algo).join(', ')}`]), set.key, key => { set = sets.find(s => s.key === key); at = 0; setUp(); resize(); })] : []),
          gm.select('Clock', [['bytes', 'bytes sent (all links alike)'], ['time', 'time, as recorded']], clock, value => { clock = value; at = 0; seek(0); }),
          gm.select('Speed', [['0.25', '¼ ×'], ['0.5', '½ ×'], ['1', '1 ×'], ['2', '2 ×'], ['4', '4 ×']], String(speed), value => { speed = Number(value); }));
        table.replaceChildren(table.firstChild, gm.table('Bytes sent by each rank', ['Algorithm', 'Steps', ...panels[0].replay.ranks.map(r => `rank ${r}`), 'Least possible', 'Ratio', 'Took'],
          panels.map(({ replay: r }) => [r.algo, r.rounds.length, ...r.sent.map(b => gm.number(b)), gm.number(r.optimum), gm.fixed(Math.max(...r.sent) / r.optimum, 4), gm.us(r.ends.time)])));
      };
      new ResizeObserver(resize).observe(stage);
      gm.theme.listeners.push(resize);
      if (!gm.prefersStill() && !gm.isMovie) {
        const watcher = new IntersectionObserver(entries => {
          if (entries.some(e => e.isIntersecting) && at === 0) start();
          if (entries.some(e => e.isIntersecting)) watcher.disconnect();
        }, { threshold: 0.4 });
        watcher.observe(stage);
      }
      gm.ring = { seek, start, stop, resize, setClock(name) { clock = name; seek(at); }, get at() { return at; }, get isPlaying() { return playing; }, get panels() { return panels; } };
      const update = next => {
        const key = set.key, nextSets = setsOf(next);
        const same = nextSets.length === sets.length && panels.length > 0;
        sets = nextSets;
        if (same) return;
        set = sets.find(s => s.key === key) || sets[0];
        setUp();
        resize();
      };
      return { elements: [figure], update };
    },
  });
}

/* What the film maker asks for (report/movie.c): the page itself is the stage. */
gm.film = {
  /* The height that the animation needs, or null if there is none. */
  begin(theme) {
    gm.setTheme(theme);
    if (!gm.ring) return null;
    gm.ring.stop();
    gm.ring.resize();
    return Math.ceil(gm.byId('chart-ring').getBoundingClientRect().bottom + 24);
  },
  show(part) { gm.ring.seek(part); return true; },
  /* Every chart, and the animation at a moment that shows how it goes: [{name, svg}]. */
  pictures(theme) {
    gm.setTheme(theme);
    const list = [...gm.charts.values()].map(chart => ({ name: chart.spec.id, svg: gm.chartSvg(chart).text }));
    if (!gm.ring) return list;
    gm.ring.stop();
    gm.ring.resize();
    gm.ring.seek(0.22);
    for (const panel of gm.ring.panels) list.push({ name: panel.replay.algo, svg: gm.panelSvg(panel).text });
    return list;
  },
};
