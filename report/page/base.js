/* base.js - what all scripts of the page share: numbers for people, elements, colours. */
'use strict';
const gm = { version: 1 };

/* ---- numbers ---- */

gm.isNumber = value => typeof value === 'number' && Number.isFinite(value);

/* Three significant digits, thousands in groups: 0.123, 12.3, 1,234. */
gm.number = (value, digits = 3) => {
  if (!gm.isNumber(value)) return '–';
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString('en-US');
  if (size === 0) return '0';
  if (size < 0.001) return value.toPrecision(2);
  return String(Number(value.toPrecision(digits)));
};
gm.fixed = (value, decimals) => gm.isNumber(value) ? value.toFixed(decimals) : '–';
gm.percent = (share, decimals = 0) => gm.isNumber(share) ? (100 * share).toFixed(decimals) + '\u00a0%' : '–';
gm.times = value => gm.isNumber(value) ? value.toFixed(2) + '\u00a0×' : '–';

const scaled = (value, units, base) => {
  if (!gm.isNumber(value)) return '–';
  let i = 0;
  while (Math.abs(value) >= base && i < units.length - 1) { value /= base; i++; }
  return gm.number(value) + '\u00a0' + units[i];
};
gm.bytes = value => scaled(value, ['B', 'kB', 'MB', 'GB', 'TB'], 1000);
/* Sizes of buffers are powers of two more often than not. */
gm.size = value => value % 1024 === 0 && value > 0 ? scaled(value, ['B', 'KiB', 'MiB', 'GiB'], 1024)
  : gm.isNumber(value) && value >= 1000 && value < 10e6 ? Math.round(value).toLocaleString('en-US') + ' B' : gm.bytes(value);
gm.us = value => scaled(value, ['µs', 'ms', 's'], 1000);
gm.ms = value => gm.us(gm.isNumber(value) ? value * 1000 : value);

gm.median = values => {
  const sorted = values.filter(gm.isNumber).sort((a, b) => a - b), n = sorted.length;
  return n === 0 ? NaN : (sorted[(n - 1) >> 1] + sorted[n >> 1]) / 2;
};
gm.sum = values => values.reduce((a, b) => a + b, 0);
gm.unique = values => [...new Set(values)];
gm.groupBy = (items, key) => {
  const groups = new Map();
  for (const item of items) {
    const k = key(item);
    if (!groups.has(k)) groups.set(k, []);
    groups.get(k).push(item);
  }
  return groups;
};
/* "rank 1", "ranks 1 and 2", "ranks 0, 1 and 2" */
gm.listed = words => words.length < 2 ? words.join('') : words.slice(0, -1).join(', ') + ' and ' + words[words.length - 1];

/* ---- elements ---- */

const SVG = 'http://www.w3.org/2000/svg';

/* Text is always set as text: nothing of the data is ever read as markup. */
const fill = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat(3)) if (child !== null && child !== undefined) element.append(child);
  return element;
};
gm.el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
gm.svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
gm.byId = id => document.getElementById(id);

gm.table = (caption, heads, rows) => gm.el('div', { class: 'table-scroll', tabindex: 0, role: 'region', 'aria-label': caption },
  gm.el('table', {}, gm.el('caption', {}, caption),
    gm.el('thead', {}, gm.el('tr', {}, heads.map(head => gm.el('th', { scope: 'col' }, head)))),
    gm.el('tbody', {}, rows.map(row => gm.el('tr', {},
      row.map((cell, i) => i === 0 ? gm.el('th', { scope: 'row' }, String(cell)) : gm.el('td', {}, String(cell))))))));

/* ECharts' tooltips are markup; this makes text safe in them. */
gm.escape = text => String(text).replace(/[&<>"']/g, c => '&#' + c.charCodeAt(0) + ';');

/* ---- colours: one set, for both themes, from the style sheet ---- */

gm.theme = {
  colour(name) { return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim(); },
  rank(i) { return this.colour('rank-' + i % 8); },
  listeners: [],
  changed() { for (const listener of this.listeners) listener(); },
};
/* White or nearly black, whichever can be read better on a colour (#rrggbb). */
gm.luminance = colour => [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16) / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
gm.textOn = colour => gm.luminance(colour) > 0.19 ? '#101418' : '#ffffff';
gm.regimeColour = regime => gm.theme.colour('regime-' + regime) || gm.theme.colour('regime-other');
gm.prefersStill = () => matchMedia('(prefers-reduced-motion: reduce)').matches;
