/* main.js - puts the page together, and keeps it up to date while it is served by `gradmesh train --live`. */
'use strict';

{
  const ORDER = ['ring', 'scaling', 'split', 'timeline', 'learning', 'bandwidth', 'plan'];
  gm.sections.sort((a, b) => ORDER.indexOf(a.id) - ORDER.indexOf(b.id));
  const built = new Map();

  /* ---- theme ---- */

  const themes = [['', 'Colours: as the system', 'Auto'], ['light', 'Colours: light', 'Light'], ['dark', 'Colours: dark', 'Dark']];
  const system = matchMedia('(prefers-color-scheme: dark)');
  let theme = '';
  const paint = name => {
    document.documentElement.dataset.theme = name || (system.matches ? 'dark' : 'light');
    gm.theme.changed();
  };
  gm.setTheme = name => {
    const [, label, word] = themes.find(t => t[0] === name) || themes[0], button = gm.byId('theme');
    theme = name;
    button.textContent = word;
    button.setAttribute('aria-label', label);
    paint(theme);
  };
  /* A page from disk may not be allowed to keep anything. */
  const kept = { get() { try { return localStorage.getItem('gradmesh-theme') || ''; } catch { return ''; } },
    set(name) { try { localStorage.setItem('gradmesh-theme', name); } catch { /* then not */ } } };

  /* ---- the parts that are not charts ---- */

  const showVerdicts = data => {
    const list = gm.verdicts(data);
    gm.byId('verdicts').replaceChildren(...list.map(v => gm.el('a', { class: 'verdict ' + v.tone, href: '#' + v.link },
      gm.el('span', { class: 'question' }, v.question), gm.el('strong', {}, v.answer), gm.el('span', { class: 'because' }, v.text))));
    gm.byId('verdict').hidden = list.length === 0;
  };
  const showTitle = data => {
    const start = data.train.length > 0 ? data.train[data.train.length - 1].start : null;
    gm.byId('title').textContent = start && start.layers ? `Training ${start.layers.replaceAll(',', '-')} with ${start.world_size === 1 ? 'one worker' : start.world_size + ' workers'}` : 'What was measured';
    const machine = data.scaling.map(p => p.machine).find(m => typeof m === 'string');
    gm.byId('subtitle').textContent = [data.made_at && new Date(data.made_at).toLocaleString('en-GB', { dateStyle: 'long', timeStyle: 'short' }), machine, data.version && 'gradmesh ' + data.version].filter(Boolean).join(' · ');
    document.title = 'gradmesh: ' + gm.byId('title').textContent;
  };
  const showMissing = data => {
    const missing = gm.sections.filter(section => !section.has(data));
    gm.byId('missing').hidden = missing.length === 0;
    gm.byId('missing-list').replaceChildren(...missing.flatMap(s => [gm.el('dt', {}, s.title), gm.el('dd', {}, 'recorded by ', gm.el('code', {}, s.how))]));
  };
  const showSources = data => gm.byId('sources').replaceChildren(gm.el('p', {}, data.files.length > 0 ? 'Made from ' : '', ...data.files.flatMap((f, i) => [i > 0 ? ', ' : '', gm.el('code', {}, f.name)]), data.files.length > 0 ? '. ' : '',
    'Charts by Apache ECharts (Apache License 2.0). This page needs no network.'));

  /* ---- everything ---- */

  const show = document => {
    const data = gm.read(document);
    gm.data = data;
    showTitle(data);
    showVerdicts(data);
    for (const section of gm.sections) {
      if (!section.has(data)) continue;
      if (!built.has(section.id)) {
        const part = section.build(data);
        const element = gm.el('section', { id: section.id, 'aria-labelledby': section.id + '-title' }, gm.el('h2', { id: section.id + '-title' }, section.title), gm.el('p', { class: 'lead' }, section.lead), part.elements);
        const next = gm.sections.slice(gm.sections.indexOf(section) + 1).map(s => gm.byId(s.id)).find(Boolean);
        gm.byId('sections').insertBefore(element, next || null);
        built.set(section.id, part);
      }
      built.get(section.id).update(data);
    }
    gm.byId('contents').replaceChildren(...gm.sections.filter(s => built.has(s.id)).map(s => gm.el('li', {}, gm.el('a', { href: '#' + s.id }, s.title))));
    showMissing(data);
    showSources(data);
  };
  gm.show = show;

  /* While a training serves the page, it is asked again and again for what has come since, with the query of the page (the
   * token) and a number by which it knows us. */
  const follow = live => {
    const line = gm.byId('live'), viewer = Math.floor(Math.random() * 2 ** 48) + 1;
    const log = { name: 'training', kind: 'train', data: [] };
    let next = 0, trace = 0, files = [log];
    const say = words => { line.hidden = false; if (line.textContent !== words) line.textContent = words; };
    const take = part => {
      const isNew = part.live.next !== next || part.live.trace !== trace;
      for (const file of part.files) if (file.kind === 'train') log.data = log.data.concat(file.data); else files = [log, file];
      [next, trace] = [part.live.next, part.live.trace];
      if (isNew) show({ version: part.version, files: files.filter(file => file !== log || log.data.length > 0), live: part.live });
    };
    const tell = isOver => {
      const run = gm.data.train[gm.data.train.length - 1], step = run && run.steps[run.steps.length - 1];
      if (run && run.end) return say(`Finished after ${gm.number(run.end.steps)} steps. This page stays as it is; gradmesh report keeps it.`);
      if (isOver) return say('The training has ended before its last step; what is shown is all that it said.');
      say(step ? `Live: step ${gm.number(step.step)}${run.start.steps > 0 ? ' of ' + gm.number(Number(run.start.steps)) : ''}, loss ${gm.fixed(step.loss, 4)}, ${gm.number(step.samples_per_s)} samples/s` : 'Live: the training has begun');
    };
    let isOver = false;
    const again = async () => {
      try {
        const answer = await fetch(`data.json${location.search}&from=${next}&trace=${trace}&viewer=${viewer}`, { cache: 'no-store' });
        if (!answer.ok) throw new Error(`the training answered ${answer.status}`);
        const part = await answer.json();
        take(part);
        isOver = part.live.is_over;
        tell(isOver);
      } catch (error) {
        say(`The training does not answer any more (${error.message}); what is shown is the last that it said.`);
      }
      if (!isOver) setTimeout(again, live.every_ms || 1000);
    };
    say('Live: waiting for the first figures');
    again();
  };

  gm.isMovie = location.hash.startsWith('#movie');
  document.documentElement.classList.toggle('movie', gm.isMovie);
  gm.setTheme(kept.get());
  gm.byId('theme').addEventListener('click', () => {
    const next = themes[(themes.findIndex(t => t[0] === theme) + 1) % themes.length][0];
    kept.set(next);
    gm.setTheme(next);
  });
  system.addEventListener('change', () => paint(theme));
  window.addEventListener('beforeprint', () => paint('light'));
  window.addEventListener('afterprint', () => paint(theme));
  const first = JSON.parse(gm.byId('data').textContent);
  show(first);
  if (first.live) follow(first.live);
}
