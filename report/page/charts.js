/* charts.js - one chart of the page: title, picture, the same as a table, and its export as SVG and PNG.
 *
 * A chart is made from `option(width)`, which returns an ECharts option in the colours of the moment. It is called
 * again when the theme, the width or the data change. */
'use strict';

gm.charts = new Map();

const EXPORT = { width: 960, height: 540 };
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', 'DejaVu Sans', sans-serif"; /* goes into attributes in double quotes */

const LEGEND = { gap: 12, row: 26 };

/* What all charts share. */
const common = () => {
  const c = name => gm.theme.colour(name);
  return {
    textStyle: { fontFamily: FONT, fontSize: 12, color: c('ink') },
    animation: !gm.prefersStill(), animationDuration: 350, animationDurationUpdate: 250,
    aria: { enabled: true },
    tooltip: { backgroundColor: c('card'), borderColor: c('line'), borderWidth: 1, padding: [8, 12], confine: true,
      textStyle: { color: c('ink'), fontSize: 13, fontFamily: FONT }, extraCssText: 'box-shadow: 0 4px 16px rgb(0 0 0 / .14); border-radius: 8px; max-width: min(340px, 80vw); white-space: normal;' },
  };
};
gm.axis = (name, more = {}) => {
  const c = key => gm.theme.colour(key);
  return { name, nameTextStyle: { color: c('quiet'), fontSize: 12 }, axisLabel: { color: c('quiet'), fontSize: 12, hideOverlap: true },
    axisLine: { lineStyle: { color: c('axis') } }, axisTick: { lineStyle: { color: c('axis') } },
    splitLine: { lineStyle: { color: c('grid') } }, minorTick: { show: false }, ...more };
};
gm.legend = (more = {}) => ({ type: 'plain', top: 0, left: 0, right: 0, itemWidth: 22, itemHeight: 10, itemGap: LEGEND.gap,
  textStyle: { color: gm.theme.colour('ink'), fontSize: 12 }, inactiveColor: gm.theme.colour('line'), ...more });

/* How much higher a legend is than one line, at this width. */
const ruler = document.createElement('canvas').getContext('2d');
const legendExtra = (option, width) => {
  if (!option.legend) return 0;
  ruler.font = '12px ' + FONT;
  let rows = 1, used = 0;
  for (const name of new Set(option.legend.data || option.series.map(series => series.name))) {
    const item = option.legend.itemWidth + 8 + ruler.measureText(name).width;
    if (used > 0 && used + item > width - 10) { rows++; used = 0; }
    used += item + LEGEND.gap;
  }
  return (rows - 1) * LEGEND.row;
};

/* The option of a chart, and by how much a legend of several lines pushes the plot down. */
const merged = (chart, width) => {
  const base = common(), own = chart.spec.option(width), extra = legendExtra(own, width);
  const grid = extra > 0 ? { grid: { ...own.grid, top: own.grid.top + extra } } : {};
  return [{ ...base, ...own, ...grid, tooltip: { ...base.tooltip, ...(own.tooltip || {}) } }, extra];
};

const download = (name, href) => {
  const link = gm.el('a', { href, download: name });
  document.body.append(link);
  link.click();
  link.remove();
};
gm.saveSvg = (name, text) => {
  const url = URL.createObjectURL(new Blob([text], { type: 'image/svg+xml' }));
  download(name + '.svg', url);
  setTimeout(() => URL.revokeObjectURL(url), 10000);
};
gm.savePng = (name, text, width, height) => {
  const image = new Image(), scale = 2;
  image.onload = () => {
    const canvas = gm.el('canvas', { width: width * scale, height: height * scale });
    const context = canvas.getContext('2d');
    context.scale(scale, scale);
    context.drawImage(image, 0, 0, width, height);
    download(name + '.png', canvas.toDataURL('image/png'));
  };
  image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(text);
};

/* The chart as an SVG of its own, on the theme's card colour. */
gm.chartSvg = (chart, size = EXPORT) => {
  const inset = { left: 24, right: 24, bottom: 16 };
  const [option, extra] = merged(chart, size.width - inset.left - inset.right);
  const height = (chart.spec.exportHeight || size.height) + extra;
  const instance = echarts.init(null, null, { renderer: 'svg', ssr: true, width: size.width, height });
  instance.setOption({ ...option, animation: false, backgroundColor: gm.theme.colour('card'),
    title: { text: chart.spec.title, left: inset.left, top: 14, textStyle: { color: gm.theme.colour('ink'), fontSize: 16, fontWeight: 600, fontFamily: FONT } },
    legend: option.legend && { ...option.legend, top: 44, left: inset.left, right: inset.right },
    grid: [].concat(option.grid || {}).map(grid => ({ ...grid, top: (grid.top || 40) + 50, left: (grid.left || 0) + 16, right: (grid.right || 0) + 16, bottom: (grid.bottom || 0) + 10 })) }, { lazyUpdate: false });
  const text = instance.renderToSVGString();
  instance.dispose();
  return { text, width: size.width, height };
};

/* spec: {id, title, note, height, renderer, option(width), table() -> [heads, rows], controls, keys} */
gm.chart = spec => {
  const plot = gm.el('div', { class: 'plot', tabindex: 0, role: 'img', id: 'plot-' + spec.id });
  const table = gm.el('details', { class: 'data' }, gm.el('summary', {}, 'The figures as a table'));
  const tools = gm.el('div', { class: 'tools' },
    gm.el('button', { type: 'button', class: 'plain', 'aria-label': `Save "${spec.title}" as SVG`, onclick: () => gm.saveSvg(spec.id, gm.chartSvg(chart).text) }, 'SVG'),
    gm.el('button', { type: 'button', class: 'plain', 'aria-label': `Save "${spec.title}" as PNG`,
      onclick: () => { const picture = gm.chartSvg(chart); gm.savePng(spec.id, picture.text, picture.width, picture.height); } }, 'PNG'));
  const note = gm.el('p', { class: 'note' });
  const figure = gm.el('figure', { class: 'card', id: 'chart-' + spec.id },
    gm.el('figcaption', {}, gm.el('div', { class: 'head' }, gm.el('h3', {}, spec.title), tools), note),
    ...[].concat(spec.controls || []), plot, table);
  const chart = { spec, figure, plot, instance: null, width: 0 };

  chart.height = () => typeof spec.height === 'function' ? spec.height(plot.clientWidth) : spec.height || 380;
  chart.draw = (isNew = true) => {
    const width = plot.clientWidth;
    if (width === 0) return;
    const [option, extra] = merged(chart, width);
    plot.style.height = chart.height() + extra + 'px';
    if (!chart.instance) chart.instance = echarts.init(plot, null, { renderer: spec.renderer || 'svg' });
    else chart.instance.resize();
    chart.width = width;
    chart.instance.setOption(option, { notMerge: isNew, lazyUpdate: false });
    if (spec.drawn) spec.drawn(chart);
    note.textContent = typeof spec.note === 'function' ? spec.note() : spec.note || '';
    /* ECharts describes the chart in aria-label; the title in front says which one it is. */
    plot.setAttribute('aria-label', spec.title + '. ' + (note.textContent || '') + ' The figures are in the table below.');
    if (table.open) chart.fillTable();
  };
  chart.fillTable = () => {
    const [heads, rows] = spec.table();
    table.replaceChildren(table.firstChild, gm.table(spec.title, heads, rows));
  };
  table.addEventListener('toggle', () => { if (table.open) chart.fillTable(); });
  if (spec.keys) plot.addEventListener('keydown', event => { if (spec.keys(event, chart)) event.preventDefault(); });
  new ResizeObserver(() => { if (Math.abs(plot.clientWidth - chart.width) > 1) chart.draw(); }).observe(plot);
  gm.theme.listeners.push(() => chart.draw());
  gm.charts.set(spec.id, chart);
  return chart;
};

/* A choice above a chart. `choices`: [value, text]. */
gm.select = (label, choices, chosen, onchange) => {
  const select = gm.el('select', { onchange: event => onchange(event.target.value) },
    choices.map(([value, text]) => gm.el('option', { value, selected: value === chosen }, text)));
  return gm.el('label', { class: 'choice' }, gm.el('span', {}, label), select);
};

gm.tip = (title, lines) => `<strong>${gm.escape(title)}</strong><table class="tip">` +
  lines.filter(Boolean).map(([name, value, colour]) => `<tr><td>${colour ? `<i style="background:${colour}"></i>` : ''}${gm.escape(name)}</td><td>${gm.escape(value)}</td></tr>`).join('') + '</table>';
