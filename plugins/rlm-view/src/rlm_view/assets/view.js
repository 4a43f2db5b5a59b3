"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const runs = data.runs, panel = document.getElementById("panel"), details = document.getElementById("details");
  const state = { tab: "", metrics: null, step: null, quantity: "", only: "", prompt: 0, search: "" };
  // The metrics that are shown without a search, most important first.
  const MAIN = [/^held_out\/(?!k$|kept_step$)/, /^suite\//, /^reward$/, /^rewards\/.*\/mean$/, /^loss$/, /^entropy$/, /^kl$/, /^penalties\/kl$/, /^completions\/(mean_length|clipped_ratio)$/, /^grad_norm$/];
  const SHARES = /^(held_out|suite)\/|ratio$|^frac_|_ties$|\/(unscored|distinct|share|nonzero|kept|full)$|^policy_loss\/clipped/;
  const rank = (name) => { const place = MAIN.findIndex((main) => main.test(name)); return place < 0 ? MAIN.length : place; };

  // ---- elements: text is only ever set as text
  function make(tag, attributes = {}, ...children) {
    const SVG = ["svg", "path", "line", "text", "circle", "title"];
    const element = SVG.includes(tag) && attributes.svg !== false ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "on") for (const [event, call] of Object.entries(value)) element.addEventListener(event, call);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined && name !== "svg") element.setAttribute(name, value);
    }
    for (const child of children) if (child !== null && child !== undefined) element.append(child);
    return element;
  }
  const HIDDEN = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/;
  // Characters that a reader cannot see, or that change the order of others, are shown by their code.
  function visible(text, parent) {
    let plain = "";
    const flush = () => { if (plain) parent.append(plain); plain = ""; };
    for (const character of String(text)) {
      if (HIDDEN.test(character)) {
        flush();
        const code = "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
        parent.append(make("span", { class: "hidden-character", title: code }, character === "\t" ? "⇥" : "⟨" + code + "⟩"));
      } else plain += character;
    }
    flush();
    return parent;
  }
  const number = (x) => x === null || x === undefined ? "–" : String(Number(Number(x).toPrecision(4)));
  const percent = (x) => `${Number((100 * x).toPrecision(3))} %`;
  const interval = (low, high, spell) => `95 % interval ${spell(low)} to ${spell(high)}`;
  // Ticks are round numbers: 1, 2 or 5 times a power of ten apart.
  function ticks(low, high) {
    if (high <= low) return [low];
    const power = 10 ** Math.floor(Math.log10((high - low) / 3));
    const gap = [1, 2, 5, 10].map((x) => x * power).find((x) => (high - low) / x <= 4);
    const first = Math.ceil(low / gap), count = Math.floor(high / gap) - first + 1;
    return Array.from({ length: count }, (_, i) => Number(((first + i) * gap).toPrecision(12)));
  }
  const capsulesAt = (run, step) => run.capsules.filter((capsule) => capsule.step === step);
  const select = (label, options, value, change) => make("label", {}, label, make("select", { on: { change: (event) => change(event.target.value) } },
    ...options.map(([key, text]) => make("option", { value: key, selected: key === value }, text))));

  // ---- curves
  function smooth(points) {
    const width = Math.max(1, Math.min(9, Math.floor(points.length / 6)));
    if (width < 3) return points.map(([x, y, low, high]) => [x, y, low, high]);
    return points.map(([x], i) => {
      const near = points.slice(Math.max(0, i - (width >> 1)), i + (width >> 1) + 1).map((point) => point[1]);
      const mean = near.reduce((sum, y) => sum + y, 0) / near.length;
      const variance = near.reduce((sum, y) => sum + (y - mean) ** 2, 0) / Math.max(1, near.length - 1);
      const half = 1.96 * Math.sqrt(variance / near.length);
      return [x, mean, near.length > 1 ? mean - half : null, near.length > 1 ? mean + half : null];
    });
  }
  function chart(metric, series) {
    const W = 420, H = 190, L = 56, R = 8, T = 8, B = 24;
    const lines = series.map(({ points, run }) => {
      const known = points.some((point) => point[2] !== null);
      return { run, points, line: known ? points : smooth(points) };
    });
    const all = lines.flatMap(({ points, line }) => [...points, ...line]);
    const xs = all.map((p) => p[0]), ys = all.flatMap((p) => [p[1], p[2], p[3]].filter((y) => y !== null && Number.isFinite(y)));
    const low = Math.min(...ys), high = Math.max(...ys), first = Math.min(...xs), last = Math.max(...xs);
    const pad = high > low ? (high - low) * 0.06 : Math.abs(high) * 0.1 || 1;
    const x = (v) => L + (last > first ? (v - first) / (last - first) : 0.5) * (W - L - R);
    const y = (v) => T + (1 - (v - low + pad) / (high - low + 2 * pad)) * (H - T - B);
    const name = metric.split(": ").pop(), spell = SHARES.test(name) && low >= 0 && high <= 1 ? percent : number;
    const at = ([px, py]) => x(px).toFixed(1) + "," + y(py).toFixed(1);
    const picture = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${metric}: from ${spell(low)} to ${spell(high)}, steps ${first} to ${last}` });
    for (const value of ticks(low, high)) {
      picture.append(make("line", { x1: L, x2: W - R, y1: y(value), y2: y(value), class: "axis" }));
      picture.append(make("text", { x: L - 5, y: y(value) + 4, "text-anchor": "end" }, spell(value)));
    }
    for (const [value, anchor] of [[first, "start"], [last, "end"]]) picture.append(make("text", { x: x(value), y: H - 6, "text-anchor": anchor }, String(value)));
    for (const { run, points, line } of lines) {
      const band = line.filter((point) => point[2] !== null);
      if (band.length > 1) picture.append(make("path", { class: "band run" + run, d: "M" + band.map((p) => at([p[0], p[3]])).join("L") + "L" + band.reverse().map((p) => at([p[0], p[2]])).join("L") + "Z" }));
      for (const point of points) picture.append(make("circle", { class: "point run" + run, cx: x(point[0]), cy: y(point[1]), r: points.length > 80 ? 1 : 2.2 },
        make("title", {}, `step ${point[0]}: ${spell(point[1])}` + (point[2] === null ? "" : `, ${interval(point[2], point[3], spell)}`))));
      if (line.length > 1) picture.append(make("path", { class: "curve run" + run, d: "M" + line.map(at).join("L") }));
    }
    return make("figure", { "data-metric": metric }, picture, make("figcaption", {}, metric));
  }
  function curves() {
    const stages = [...new Set(runs.flatMap((run) => run.stages.map((stage) => stage.name)))];
    const names = [...new Set(runs.flatMap((run) => run.stages.flatMap((stage) => Object.keys(stage.curves))))];
    names.sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
    const box = make("div", { class: "charts" });
    const search = make("input", { type: "search", placeholder: "metrics…", value: state.search, "aria-label": "Search a metric",
      on: { input: (event) => { state.search = event.target.value; draw(); } } });
    function draw() {
      box.replaceChildren();
      const wanted = names.filter((name) => state.search ? name.includes(state.search) : rank(name) < MAIN.length).slice(0, 60);
      for (const stage of stages) for (const metric of wanted) {
        const series = runs.flatMap((run, index) => run.stages.filter((one) => one.name === stage && one.curves[metric]).map((one) => ({ run: index, points: one.curves[metric] })));
        if (series.length) box.append(chart(stages.length > 1 ? `${stage}: ${metric}` : metric, series));
      }
      if (!box.children.length) box.append(make("p", { class: "note" }, names.length ? "No metric has this name." : "No step was logged yet."));
    }
    draw();
    const keys = runs.map((run, index) => make("span", {}, make("span", { class: "key run" + index }), run.name));
    panel.append(make("div", { class: "bar" }, search, ...keys, make("span", { class: "note" }, "band: 95 % interval; of held-out scores as measured, of others around the moving mean")));
    for (const run of runs) panel.append(...heading(run));
    panel.append(box);
  }
  function heading(run) {
    const found = run.findings.flatMap((stage) => stage.findings.map((finding) => ({ ...finding, stage: stage.stage })));
    const parts = found.map((finding) => make("p", { class: "finding" }, make("b", {}, finding.name), ` (${run.name}, ${finding.stage}, steps ${finding.step}–${finding.until}): ${finding.evidence}. Try ${finding.remedy}`));
    const summary = run.summary;
    if (summary && summary.after !== undefined) {
      const known = [summary.before, summary.after].filter((x) => x !== null && x !== undefined);
      const spell = known.every((x) => x >= 0 && x <= 1) ? percent : number, range = summary.interval;
      const words = Array.isArray(range) ? ` (${interval(range[0], range[1], spell)})` : "";
      parts.push(make("p", {}, `${run.name}: held-out ${summary.metric} from ${summary.before === null ? "–" : spell(summary.before)} to ${spell(summary.after)}${words}`));
    } else parts.push(make("p", { class: "note" }, `${run.name}: not finished, or without held-out score`));
    return parts;
  }

  // ---- tokens
  const scales = new WeakMap();
  function scaleOf(capsule, quantity) {
    if (!scales.has(capsule)) scales.set(capsule, {});
    return scales.get(capsule)[quantity] ??= largest(capsule, quantity);
  }
  function largest(capsule, quantity) {
    let size = 0;
    for (const row of capsule.completions) for (const x of row.values[quantity] || []) if (x !== null) size = Math.max(size, Math.abs(quantity === "ratio" ? x - 1 : x));
    return size;
  }
  function color(value, size, quantity) {
    if (value === null || value === undefined || !size) return "";
    const signed = quantity === "ratio" ? value - 1 : value;
    const share = Math.min(1, Math.abs(signed) / size);
    return share < 0.004 ? "" : `rgba(var(--${signed > 0 ? "up" : "down"}), ${(0.1 + 0.65 * Math.sqrt(share)).toFixed(3)})`;
  }
  function tokens(row, capsule) {
    const size = scaleOf(capsule, state.quantity), values = row.values[state.quantity] || [];
    const box = make("div", { class: "completion", tabindex: "0", role: "group", "aria-label": "Completion; arrow keys choose a token" });
    const ends = new Set(row.turns);
    let now = -1;
    const spans = row.tokens.map((text, index) => {
      const masked = row.mask[index] === "0";
      const span = visible(text, make("span", { class: "token" + (masked ? " masked" : ""), "data-i": index }));
      span.style.backgroundColor = color(values[index], size, state.quantity);
      box.append(span);
      if (ends.has(index)) box.append(make("span", { class: "turn", title: "end of a turn" }, "⏎"));
      return span;
    });
    function choose(index) {
      if (index < 0 || index >= spans.length) return;
      if (now >= 0) spans[now].classList.remove("now");
      now = index;
      spans[now].classList.add("now");
      spans[now].scrollIntoView({ block: "nearest" });
      const list = Object.entries(row.values).map(([name, x]) => `${name} ${number(x[now])}`).join(" · ");
      details.replaceChildren(visible(row.tokens[now] || "(part of a character)", make("b", {})), ` token ${now}${row.mask[now] === "0" ? ", not trained on" : ""}: ${list || "no numbers"}`);
    }
    box.addEventListener("click", (event) => { const span = event.target.closest(".token"); if (span) choose(Number(span.dataset.i)); });
    box.addEventListener("keydown", (event) => {
      const moves = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: spans.length - 1 };
      if (event.key in moves) { choose(Math.max(0, moves[event.key])); event.preventDefault(); }
    });
    return box;
  }
  function chips(row) {
    const parts = Object.entries(row.rewards || {}).map(([name, x]) => [name, x]);
    const known = [["reward", row.reward], ...parts, ["Â", row.advantage]];
    return make("div", { class: "chips" }, ...known.map(([name, x]) => make("span", {}, name + " ", make("b", {}, number(x)))),
      row.tokens ? make("span", {}, `${row.tokens.length} tokens`) : null, row.truncated ? make("span", {}, make("b", {}, "truncated")) : null);
  }
  // The reference answer first, then the other columns of the example.
  function question(row) {
    const columns = Object.entries(row.columns || {}).sort((a, b) => (b[0] === "answer") - (a[0] === "answer"));
    return [visible(row.prompt, make("div", { class: "prompt" })),
      ...columns.map(([name, x]) => visible(x, make("div", { class: "prompt column" }, make("b", {}, visible(name, make("span", {}))), " ")))];
  }
  function completion(row, capsule) {
    return make("article", {}, chips(row), row.tokens ? tokens(row, capsule) : visible(row.completion, make("div", { class: "completion" })));
  }
  function groups(rows, capsule) {
    const found = new Map();
    for (const row of rows) {
      const key = row.group === undefined ? row.prompt : row.group;
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(row);
    }
    return [...found.values()].map((members, index) => {
      const rewards = members.map((row) => row.reward).filter((x) => x !== null);
      const mean = rewards.length ? rewards.reduce((a, b) => a + b, 0) / rewards.length : null;
      const box = make("details", { class: "group", open: index < 3 },
        visible(members[0].prompt.replace(/\s+/g, " ").slice(0, 90), make("summary", {}, make("b", {}, `reward ${number(mean)} `), `× ${members.length}  `)));
      const fill = () => {
        if (box.open && box.children.length === 1) {
          box.append(...question(members[0]));
          for (const row of [...members].sort((a, b) => (b.reward ?? -Infinity) - (a.reward ?? -Infinity))) box.append(completion(row, capsule));
        }
      };
      box.addEventListener("toggle", fill);
      fill();
      return box;
    });
  }
  // Completions without an advantage have no gradient, unless a penalty has one.
  const FILTERS = { all: () => true, "with a gradient": (row) => row.advantage !== 0, "without a gradient": (row) => row.advantage === 0, truncated: (row) => row.truncated };
  function steps() {
    const known = [...new Set(runs.flatMap((run) => run.capsules.map((capsule) => capsule.step)))].sort((a, b) => a - b);
    if (!known.length) return samples();
    const trains = (step) => runs.some((run) => capsulesAt(run, step).some((capsule) => capsule.completions.some(FILTERS["with a gradient"])));
    if (!known.includes(state.step)) state.step = known.filter(trains).pop() ?? known[known.length - 1];
    if (!state.only) state.only = trains(state.step) ? "with a gradient" : "all";
    const shown = runs.map((run) => capsulesAt(run, state.step));
    const quantities = [...new Set(shown.flat().flatMap((capsule) => capsule.quantities))];
    if (!quantities.includes(state.quantity)) state.quantity = quantities[0] || "";
    const turn = (by) => () => { const i = known.indexOf(state.step) + by; if (known[i] !== undefined) { state.step = known[i]; show(); } };
    panel.append(make("div", { class: "bar" },
      make("button", { on: { click: turn(-1) }, "aria-label": "Previous step" }, "‹"),
      select("step", known.map((step) => [String(step), String(step)]), String(state.step), (value) => { state.step = Number(value); show(); }),
      make("button", { on: { click: turn(1) }, "aria-label": "Next step" }, "›"),
      select("color", quantities.map((name) => [name, name]), state.quantity, (value) => { state.quantity = value; show(); }),
      select("show", Object.keys(FILTERS).map((name) => [name, name]), state.only, (value) => { state.only = value; show(); }),
      make("span", { class: "scale" }, swatch("down"), "negative", swatch("up"), "positive, underlined: not trained on, ⏎ end of a turn")));
    panel.append(make("div", { class: "runs" }, ...shown.map((capsules, index) => make("section", { "aria-label": runs[index].name },
      make("h2", {}, runs[index].name),
      ...(capsules.length ? capsules.flatMap(step) : [make("p", { class: "note" }, "This run has no capsule of this step.")])))));
  }
  function swatch(name) {
    const box = make("span", { class: "swatch" });
    box.style.backgroundColor = `rgba(var(--${name}), .6)`;
    return box;
  }
  function step(capsule) {
    const rows = capsule.completions.filter(FILTERS[state.only]);
    const told = make("p", { class: "note" }, `${capsule.stage}, loss ${number(capsule.loss)}, ${rows.length} of ${capsule.completions.length} completions`);
    return [told, capsule.fault ? visible(capsule.fault, make("p", { class: "finding" }, "This step ended with: ")) : null,
      capsule.note && capsule.note !== capsule.fault ? visible(capsule.note, make("p", { class: "note" }, "Not replayed: ")) : null, ...groups(rows, capsule)].filter(Boolean);
  }
  function samples() {
    const known = [...new Set(runs.flatMap((run) => run.samples.map((sample) => sample.step)))].filter((x) => x !== null).sort((a, b) => a - b);
    if (!known.length) { panel.append(make("p", { class: "note" }, "This run has no samples.")); return; }
    if (!known.includes(state.step)) state.step = known[known.length - 1];
    panel.append(make("div", { class: "bar" },
      select("after step", known.map((value) => [String(value), String(value)]), String(state.step), (value) => { state.step = Number(value); show(); }),
      make("span", { class: "note" }, "Samples only: `capsule: {every: 10}` in a recipe stores steps whole, and colors each token.")));
    panel.append(make("div", { class: "runs" }, ...runs.map((run) => make("section", { "aria-label": run.name }, make("h2", {}, run.name),
      ...groups(run.samples.filter((sample) => sample.step === state.step), null)))));
  }

  // ---- one prompt over time
  function prompts() {
    const found = new Map();
    runs.forEach((run, index) => {
      for (const capsule of run.capsules) for (const row of capsule.completions) add(row.prompt, { run: index, step: capsule.step, row, capsule });
      const stored = new Set(run.capsules.map((capsule) => capsule.step - 1));
      for (const sample of run.samples) if (!stored.has(sample.step)) add(sample.prompt, { run: index, step: sample.step + 1, row: sample, capsule: null });
    });
    function add(prompt, entry) { if (!found.has(prompt)) found.set(prompt, []); found.get(prompt).push(entry); }
    const times = (entries) => new Set(entries.map((entry) => entry.step)).size;
    const list = [...found.entries()].sort((a, b) => times(b[1]) - times(a[1])).slice(0, 500);
    if (!list.length) { panel.append(make("p", { class: "note" }, "This run has no samples.")); return; }
    state.prompt = Math.min(state.prompt, list.length - 1);
    const [prompt, entries] = list[state.prompt];
    panel.append(make("div", { class: "bar" }, select("prompt", list.map(([text, seen], i) => [String(i), `${times(seen)} × ${text.replace(/\s+/g, " ").slice(0, 70)}`]), String(state.prompt), (value) => { state.prompt = Number(value); show(); })));
    panel.append(...question(entries[0].row));
    panel.append(make("div", { class: "runs" }, ...runs.map((run, index) => {
      const own = entries.filter((entry) => entry.run === index);
      const at = [...new Set(own.map((entry) => entry.step))].sort((a, b) => a - b);
      return make("section", { "aria-label": run.name }, make("h2", {}, run.name), ...at.flatMap((when) => [make("h3", {}, `step ${when}`),
        ...own.filter((entry) => entry.step === when).slice(0, 16).map((entry) => completion(entry.row, entry.capsule))]));
    })));
  }

  // ---- settings
  function settings() {
    const keys = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))].sort();
    const spell = (run, key) => key in run.settings ? JSON.stringify(run.settings[key]) : "–";
    const different = keys.filter((key) => new Set(runs.map((run) => spell(run, key))).size > 1);
    const table = (names) => make("table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "setting"), ...runs.map((run) => make("th", { scope: "col" }, run.name)))),
      make("tbody", {}, ...names.map((key) => make("tr", {}, make("td", {}, key), ...runs.map((run) => visible(spell(run, key), make("td", {})))))));
    if (runs.length > 1) panel.append(make("h2", {}, "Different"), different.length ? table(different) : make("p", { class: "note" }, "nothing"));
    const given = keys.filter((key) => runs.some((run) => (run.given || []).includes(key)));
    if (given.length) panel.append(make("h2", {}, "Set by the recipe"), table(given), make("h2", {}, "Defaults"));
    panel.append(table(keys.filter((key) => !given.includes(key))));
  }

  // ---- tabs
  const TABS = { Curves: curves, Steps: steps, Prompts: prompts, Settings: settings };
  const bar = document.getElementById("tabs");
  const buttons = Object.keys(TABS).map((name) => make("button", { role: "tab", id: "tab-" + name, "aria-controls": "panel", on: { click: () => open(name) } }, name));
  bar.append(...buttons);
  bar.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const names = Object.keys(TABS), next = names[(names.indexOf(state.tab) + by + names.length) % names.length];
    open(next);
    document.getElementById("tab-" + next).focus();
  });
  function open(name) { state.tab = name; show(); }
  function show() {
    for (const button of buttons) {
      const chosen = button.textContent === state.tab;
      button.setAttribute("aria-selected", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
    }
    const kept = document.activeElement && document.activeElement.closest("label") ? document.activeElement.closest("label").firstChild.textContent : "";
    panel.setAttribute("aria-labelledby", "tab-" + state.tab);
    panel.replaceChildren();
    details.replaceChildren();
    TABS[state.tab]();
    for (const label of panel.querySelectorAll("label")) if (kept && label.firstChild.textContent === kept) label.querySelector("select").focus();
    document.body.dataset.ready = state.tab;
  }
  const asked = location.hash.slice(1).replace(/%20/g, " ").split("/");
  if (asked[1]) state.quantity = asked[1];
  open(TABS[asked[0]] ? asked[0] : "Curves");
})();
