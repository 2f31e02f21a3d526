/* checks.js - what the browser test asks the page (tests/report/page_test.c). Each check returns '' or what is wrong. */
'use strict';

const until = async (test, what, times = 400) => {
  for (let i = 0; i < times; i++) {
    if (test()) return '';
    await new Promise(done => setTimeout(done, 50));
  }
  return 'waited in vain for ' + what;
};

const luminance = colour => {
  const [r, g, b] = colour.match(/[\d.]+/g).map(Number).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
};
const background = element => {
  for (let e = element; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor;
    if (!/, 0\)$|transparent/.test(colour)) return colour;
  }
  return 'rgb(255, 255, 255)';
};

const checks = {
  hasSections: (...ids) => ids.filter(id => !document.getElementById(id)).map(id => 'no section ' + id).join(),

  saysVerdicts(...words) {
    const text = document.getElementById('verdicts').textContent;
    return words.filter(word => !text.includes(word)).map(word => `"${word}" is not in "${text}"`).join();
  },

  /* Every chart has marks: in an SVG as many shapes as there are points, on a canvas pixels that are not the card's. */
  async chartsHaveMarks() {
    for (const [id, chart] of gm.charts) {
      const wait = await until(() => chart.plot.querySelector('svg path, canvas'), 'the chart ' + id);
      if (wait) return wait;
      const canvas = chart.plot.querySelector('canvas');
      if (canvas) {
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        const colours = new Set();
        for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] === 255) colours.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
        if (colours.size < 4) return `${id} has ${colours.size} colours`;
      } else if (chart.plot.querySelectorAll('svg path').length < 8) return `${id} has too few marks`;
    }
    return '';
  },

  /* As many points in the scaling chart as there are records of it. */
  scalingShowsEveryPoint() {
    const series = gm.charts.get('scaling').instance.getOption().series.flatMap(s => s.data.filter(d => d.point));
    return series.length === gm.data.scaling.length ? '' : `${series.length} points of ${gm.data.scaling.length} records`;
  },

  /* After the window has changed: all charts are as wide as their places are now. */
  isDrawnFor: width => until(() => innerWidth === width && [...gm.charts.values()].every(chart => Math.abs(chart.plot.clientWidth - chart.width) <= 1), 'the charts to follow the window'),

  /* Of a trace with so many events, or a few more. */
  saysWhatIsLeftOut(n) {
    const [trace] = gm.data.traces, note = document.querySelector('#chart-timeline .note').textContent;
    const all = trace.spans.length + trace.other.left_out_events;
    if (all < n || all > n + 100) return `${all} spans are accounted for`;
    return note.includes(`The last ${gm.number(trace.spans.length)} of ${gm.number(all)} spans`) ? '' : note;
  },

  fits() {
    const root = document.documentElement;
    if (root.scrollWidth <= innerWidth) return '';
    const wide = [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.table-scroll'));
    return `${root.scrollWidth} pixels wide in a window of ${innerWidth}: ${wide.slice(0, 3).map(e => e.tagName + '.' + (e.getAttribute('class') || '')).join()}`;
  },

  textIsReadable() {
    const weak = [...document.querySelectorAll('h1, h2, h3, p, a, summary, button, .verdict span, .verdict strong, dt, dd, label span')].filter(e => e.offsetParent && e.textContent.trim())
      .map(e => [contrast(getComputedStyle(e).color, background(e)), e]).filter(([ratio]) => ratio < 4.5);
    const texts = [...document.querySelectorAll('.ring-panel text, .plot svg text')].filter(t => t.textContent.trim() && /^rgb/.test(getComputedStyle(t).fill))
      .map(t => [contrast(getComputedStyle(t).fill, background(t)), t]).filter(([ratio]) => ratio < 4.5);
    return [...weak, ...texts].slice(0, 3).map(([ratio, e]) => `"${e.textContent.slice(0, 40)}" has a contrast of ${ratio.toFixed(1)}`).join();
  },

  isDark: () => luminance(getComputedStyle(document.body).backgroundColor) < 0.1 ? '' : 'the page is not dark',

  hasNames() {
    const bare = [...document.querySelectorAll('[role=img], button, select, input')].filter(e => !e.getAttribute('aria-label') && !e.textContent.trim() && !e.closest('label'));
    return bare.map(e => e.outerHTML.slice(0, 80)).join();
  },

  tablesHaveRows() {
    for (const details of document.querySelectorAll('details.data')) details.open = true;
    for (const chart of gm.charts.values()) chart.fillTable();
    const empty = [...document.querySelectorAll('details.data')].filter(d => d.querySelectorAll('tbody tr').length === 0).map(d => d.closest('figure').id);
    for (const details of document.querySelectorAll('details.data')) details.open = false;
    return empty.join();
  },

  async animationAdvances() {
    gm.ring.seek(0);
    const first = gm.ring.panels.map(p => p.svg.innerHTML).join();
    gm.ring.start();
    const wait = await until(() => gm.ring.at > 0.01, 'the animation to move');
    gm.ring.stop();
    if (wait) return wait;
    return gm.ring.panels.map(p => p.svg.innerHTML).join() === first ? 'nothing in the pictures has changed' : '';
  },

  /* On either clock: at the end every rank holds the contribution of each rank once, and the value under every chunk is
   * their sum. */
  animationEndsRight(sum) {
    for (const clock of ['bytes', 'time']) {
      gm.ring.setClock(clock);
      gm.ring.seek(1);
      for (const { replay, svg } of gm.ring.panels) {
        const moment = replay.at(clock, replay.ends[clock]);
        if (moment.flying.length > 0) return `${replay.algo}: something still flies`;
        for (const row of moment.cells) for (const counts of row) if (counts.some(count => count !== 1)) return `${replay.algo}: a chunk holds ${counts}`;
        const values = [...svg.querySelectorAll('text')].filter(t => t.getAttribute('text-anchor') === 'middle' && /^\d+$/.test(t.textContent)).map(t => t.textContent);
        if (values.length === 0 || values.some(v => v !== String(sum))) return `${replay.algo} shows ${values}`;
      }
    }
    gm.ring.setClock('bytes');
    return '';
  },

  ringSendsTheLeast() {
    const [ring, naive] = gm.ring.panels.map(p => p.replay);
    const most = Math.max(...ring.sent), n = ring.n;
    if (Math.abs(most / ring.optimum - 1) > 0.01) return `the ring sent ${most}, the least is ${ring.optimum}`;
    const ratio = Math.max(...naive.sent) / most;
    return Math.abs(ratio - n / 2) < 0.05 ? '' : `naive sent ${ratio} times as much, not ${n / 2}`;
  },

  async hoverTells(id) {
    const box = gm.charts.get(id).plot.getBoundingClientRect();
    return until(() => [...gm.charts.get(id).plot.querySelectorAll('div')].some(d => d.textContent.length > 5 && getComputedStyle(d).visibility === 'visible' && getComputedStyle(d).opacity > 0.5 && d.querySelector('.tip')), 'a tooltip over ' + id + ' at ' + JSON.stringify(box), 10);
  },

  /* Where a mark of the chart is in the window: [x, y]. */
  markOf(id) {
    const chart = gm.charts.get(id);
    chart.plot.scrollIntoView({ block: 'center', behavior: 'instant' });
    const box = chart.plot.getBoundingClientRect();
    if (id === 'timeline') {
      const choice = document.querySelector('#chart-timeline select'), zoom = chart.instance.getOption().dataZoom[0];
      const trace = gm.data.traces.find(t => !choice || t.name === choice.value);
      const span = trace.spans.filter(s => s.cat === 'op' && s.start >= zoom.startValue && s.end <= zoom.endValue).sort((a, b) => (b.end - b.start) - (a.end - a.start))[0];
      const row = chart.instance.getOption().yAxis[0].data.indexOf(span.rank * 1000 + span.tid);
      const [x, y] = chart.instance.convertToPixel({ gridIndex: 0 }, [(span.start + span.end) / 2, row]);
      return [box.left + x, box.top + y];
    }
    const series = chart.instance.getOption().series, at = series.findIndex(s => s.data.some(d => d.point && d.point.world_size > 1));
    const point = series[at].data.find(d => d.point && d.point.world_size > 1);
    const [x, y] = chart.instance.convertToPixel({ seriesIndex: at }, point.value);
    return [box.left + x, box.top + y];
  },

  exportsStandAlone() {
    for (const { name, svg } of gm.film.pictures('light')) {
      const parsed = new DOMParser().parseFromString(svg, 'image/svg+xml');
      if (parsed.querySelector('parsererror')) return `${name}.svg is not well-formed`;
      if (/(href|src)="http/.test(svg)) return `${name}.svg asks for something`;
      if (parsed.querySelectorAll('path, rect').length < 4) return `${name}.svg is empty`;
    }
    return '';
  },

  /* More data change the page in place. */
  async updatesInPlace() {
    const figures = document.querySelectorAll('figure').length, document_ = JSON.parse(document.getElementById('data').textContent);
    const log = document_.files.find(f => f.kind === 'train');
    const last = log.data.filter(r => r.event === 'step').pop();
    log.data.splice(log.data.length - 1, 0, { ...last, step: last.step + 50, loss: 0.001 });
    gm.show(document_);
    if (document.querySelectorAll('figure').length !== figures) return 'the page has other figures now';
    const data = gm.charts.get('learning').instance.getOption().series[0].data;
    return data[data.length - 1][0] === last.step + 50 ? '' : 'the new step is not in the chart';
  },

  /* Markup in the data is shown as text. */
  hostileTextStaysText: () => window.harmed ? 'a script in the data ran' : document.querySelector('img[src=x]') ? 'markup in the data became an element' : '',
};
