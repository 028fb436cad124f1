"use strict";
/* The step viewer's controls, panels and drawings. What stands where in a step is computed in steps.js. */


const DATA = JSON.parse(document.getElementById("data").textContent);
const TARGET = DATA.sources.indexOf("target");
const STATES = {
  root: "root: the last token of the context",
  accepted: "accepted",
  cut: "accepted, but cut off by the stop id or the length limit",
  tested: "tested, not accepted: the target chose another token here",
  untested: "not tested: its parent was not accepted",
  bonus: "bonus: the target's own token, drafted by nobody",
};
// method and beside: names, "" for none; zoom: null for as large as fits, which is then `fitted`
const view = { run: 0, prompt: 0, method: "", beside: "", step: 0, zoom: null, fitted: 1, panels: [] };
const $ = (id) => document.getElementById(id);

function svgElement(name, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

function span(className, text, title = "") {
  const element = document.createElement("span");
  Object.assign(element, { className, textContent: text, title });
  return element;
}

function options(select, entries, chosen) {
  const made = entries.map(([value, text, disabled]) => Object.assign(new Option(text, value), { disabled }));
  select.replaceChildren(...made);
  select.value = chosen;
}

const sourceClass = (source) => `source-${DATA.sources[source]}`;
const sourceName = (source) => DATA.sources[source].replace("_", " ");
const run = () => DATA.runs[view.run];
const prompt = () => run().prompts[view.prompt];
const labelOf = (token) => run().vocabulary[token] ?? `#${token}`;
const nStepsOf = (turn) => turn.steps.emitted.length;

/** Fills the selects for the chosen run and prompt, and makes a panel for each chosen method. */
function choose() {
  options($("run"), DATA.runs.map((one, i) => [i, one.title]), view.run);
  const names = run().prompts.map((one) => (one.turn ? `${one.id}, turn ${one.turn + 1}` : one.id));
  options($("prompt"), names.map((name, i) => [i, name]), view.prompt);
  const turns = prompt().turns, usable = turns.filter((turn) => !turn.error);
  const named = (name) => usable.find((turn) => turn.method === name);
  if (!named(view.method)) view.method = usable.at(-1)?.method ?? "";
  if (!named(view.beside) || view.beside === view.method) view.beside = "";
  const methods = turns.map(({ method, error }) => [method, error ? `${method}: ${error}` : method, !!error]);
  options($("method"), methods, view.method);
  options($("beside"), [["", "nothing"], ...methods.filter(([name]) => name !== view.method)], view.beside);
  view.panels = [view.method, view.beside].filter(Boolean).map((name) => makePanel(named(name)));
  $("panels").replaceChildren(...view.panels.map((panel) => panel.root));
  const n = view.panels.length ? nStepsOf(view.panels[0].turn) : 0;
  $("slider").max = Math.max(1, n);
  go(Math.max(0, Math.min(view.step, n - 1)));
}

function makePanel(turn) {
  const root = $("panel").content.firstElementChild.cloneNode(true);
  const part = (name) => root.querySelector(`.${name}`);
  const panel = { root, turn, part, output: prompt().outputs[turn.output], origins: origins(turn, TARGET), picked: 0 };
  root.querySelector("h3").textContent = turn.method;
  const most = Math.max(1, ...turn.steps.emitted), strip = part("strip"), from = starts(turn);
  strip.setAttribute("viewBox", `0 0 ${Math.max(1, nStepsOf(turn))} ${most}`);
  turn.steps.emitted.forEach((n, step) => {
    for (let i = 0; i < n; i++) {
      const box = { x: step, y: most - 1 - i, width: 0.9, height: 1, class: sourceClass(panel.origins[from[step] + i]) };
      strip.append(svgElement("rect", box));
    }
  });
  strip.append(svgElement("rect", { class: "here", y: 0, width: 1, height: most }));
  strip.addEventListener("click", (event) => {
    const bounds = strip.getBoundingClientRect();
    const step = Math.floor(((event.clientX - bounds.left) / bounds.width) * nStepsOf(turn));
    go(turn === view.panels[0].turn ? step : stepAt(view.panels[0].turn, from[step]));
  });
  for (const kind of ["mouseover", "click"]) {
    part("tree").addEventListener(kind, (event) => {
      const node = event.target.closest(".node");
      if (node) pick(panel, Number(node.dataset.node));
    });
  }
  return panel;
}

/** Shows one step; the method beside shows its step at the same place of the output. */
function go(step) {
  const turn = view.panels[0]?.turn;
  if (!turn) $("place").textContent = "no method finished this prompt";
  if (!turn) return;
  view.step = Math.max(0, Math.min(step, nStepsOf(turn) - 1));
  $("slider").value = view.step + 1;
  $("place").textContent = nStepsOf(turn) ? `step ${view.step + 1} of ${nStepsOf(turn)}` : "no step";
  const position = starts(turn)[view.step] ?? 0;
  view.panels.forEach((panel, i) => show(panel, i === 0 ? view.step : stepAt(panel.turn, position)));
}

function show(panel, step) {
  const { turn, output, part } = panel;
  const before = starts(turn)[step] ?? 1, emitted = turn.steps.emitted[step] ?? 0;
  showText(panel, before, before + emitted);
  part("strip").querySelector(".here").setAttribute("x", step);
  if (!nStepsOf(turn)) {
    part("summary").textContent = `no step: the prefill's token ended the output (${turn.stop_reason})`;
    return;
  }
  panel.placed = boxes(nodesOf(turn, output.ids, step, TARGET), labelOf);
  const nAccepted = panel.placed.nodes.filter((node) => node.state === "accepted").length;
  const end = step === nStepsOf(turn) - 1 ? `; the output ends here (${turn.stop_reason})` : "";
  part("summary").textContent =
    `step ${step + 1} of ${nStepsOf(turn)}: ${turn.steps.tokens[step].length} nodes, ` +
    `${testedOf(panel.placed.nodes).length} tested, ${nAccepted} accepted; ${emitted} tokens emitted` +
    `; output ${before + emitted} of ${output.ids.length} tokens${end}`;
  showTree(panel);
}

function showText(panel, now, end) {
  const text = panel.part("text"), { texts, ids } = panel.output;
  text.replaceChildren(span("prompt", prompt().text ?? `(prompt not available: ${prompt().n_tokens} tokens)\n`));
  for (let i = 0; i < end; i++) {
    if (!texts[i]) continue; // a part of a character: the token that completes it shows it
    const source = panel.origins[i];
    const className = `token ${sourceClass(source)}${i >= now ? " now" : ""}`;
    text.append(span(className, texts[i], `token ${ids[i]}, ${sourceName(source)}`));
  }
  text.scrollTop = text.scrollHeight;
}

function showTree(panel) {
  const { nodes, width, height } = panel.placed, tree = panel.part("tree");
  const [across, down] = [(tree.clientWidth - 4) / width, (tree.clientHeight - 4) / height];
  // What would become too small to read is scrolled instead: first down, then also across.
  view.fitted = [Math.min(across, down), across].find((scale) => scale >= 0.75) ?? 0.85;
  view.fitted = Math.min(1, view.fitted);
  const zoom = view.zoom ?? view.fitted;
  const size = { width: width * zoom, height: height * zoom, viewBox: `0 0 ${width} ${height}` };
  const svg = svgElement("svg", size), edges = { plain: [], strong: [] };
  for (const node of nodes.slice(1)) {
    const parent = nodes[node.parent], x = parent.x + parent.width, middle = node.x - GAP / 2;
    const y1 = parent.y + BOX / 2, y2 = node.y + BOX / 2;
    const d = `M ${x} ${y1} H ${middle - GAP / 2} C ${middle} ${y1} ${middle} ${y2} ${node.x} ${y2}`;
    const strong = ["accepted", "bonus"].includes(node.state);
    edges[strong ? "strong" : "plain"].push(
      svgElement("path", { d, class: `edge ${sourceClass(node.source)} ${node.state}` }),
    );
  }
  svg.append(...edges.plain, ...edges.strong);
  nodes.forEach((node, i) => {
    const group = svgElement("g", { class: `node ${sourceClass(node.source)} ${node.state}`, "data-node": i });
    const rx = node.state === "bonus" ? BOX / 2 : 5, middle = node.x + node.width / 2;
    group.append(svgElement("rect", { x: node.x, y: node.y, width: node.width, height: BOX, rx }));
    group.append(svgElement("text", { x: middle, y: node.y + BOX / 2 }, node.label));
    group.append(svgElement("title", {}, describe(node)));
    svg.append(group);
  });
  tree.replaceChildren(svg);
  const end = nodes.findLast((node) => ["root", "accepted", "bonus"].includes(node.state));
  tree.scrollLeft = (end.x + end.width + GAP) * zoom - tree.clientWidth;
  const lowest = (end.y + ROW + BOX) * zoom;
  tree.scrollTop = lowest < tree.clientHeight ? 0 : lowest - tree.clientHeight / 2; // with the root where possible
  pick(panel, 0, false);
}

function describe(node) {
  const from = ["root", "bonus"].includes(node.state) ? "" : `${sourceName(node.source)}, `;
  return `token ${node.token} “${labelOf(node.token)}”, depth ${node.depth}, ${from}${STATES[node.state]}`;
}

/** Says everything about one node; with `mark` also in the tree. */
function pick(panel, index, mark = true) {
  panel.picked = index;
  panel.part("details").textContent = describe(panel.placed.nodes[index]);
  panel.part("tree").querySelector(".picked")?.classList.remove("picked");
  if (!mark) return;
  const node = panel.part("tree").querySelector(`[data-node="${index}"]`);
  node.classList.add("picked");
  node.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("select, input")) return;
  if (event.target !== document.body && !$("viewer").contains(event.target)) return;
  const panel = view.panels.find((one) => one.part("tree") === event.target);
  const steps = { ArrowLeft: view.step - 1, ArrowRight: view.step + 1, Home: 0, End: Infinity };
  const nodes = { ArrowUp: -1, ArrowDown: 1 };
  if (event.key in steps) go(steps[event.key]);
  else if (panel?.placed && event.key in nodes) {
    pick(panel, Math.max(0, Math.min(panel.picked + nodes[event.key], panel.placed.nodes.length - 1)));
  } else return;
  event.preventDefault();
}

function start() {
  $("nothing").hidden = DATA.runs.length > 0;
  $("player").hidden = DATA.runs.length === 0;
  if (!DATA.runs.length) return;
  for (const name of ["run", "prompt", "method", "beside"]) {
    $(name).addEventListener("change", () => {
      view[name] = typeof view[name] === "number" ? Number($(name).value) : $(name).value;
      if (name === "run") view.prompt = 0;
      if (name === "run" || name === "prompt") view.step = 0;
      choose();
    });
  }
  const jumps = { first: () => 0, back: () => view.step - 1, forward: () => view.step + 1, last: () => Infinity };
  for (const [name, to] of Object.entries(jumps)) $(name).addEventListener("click", () => go(to()));
  $("slider").addEventListener("input", () => go(Number($("slider").value) - 1));
  const zooms = { smaller: (z) => Math.max(0.2, z / 1.25), larger: (z) => Math.min(4, z * 1.25), auto: () => null };
  for (const [name, zoomed] of Object.entries(zooms)) {
    $(name).addEventListener("click", () => {
      view.zoom = zoomed(view.zoom ?? view.fitted);
      go(view.step);
    });
  }
  document.addEventListener("keydown", onKey);
  window.addEventListener("resize", () => go(view.step));
  choose();
}

start();
