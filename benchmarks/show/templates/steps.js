"use strict";
/* What the step viewer shows, as pure functions over recorded columns; it does not touch the page (viewer.js does).

A turn is one method's recording of one prompt: steps.tokens, parents, sources, path and emitted, one entry a step, as
benchmarks/show/viewer_data.py copied them. Steps count from 0 here and from 1 on the page. output[0] is the prefill's token. */

/** Depth and row of every node of a tree drawn from left to right; `parents` come before their children.
 *
 * Siblings stand in rank order. A node's first child continues its row; the others go as high up as the subtrees of
 * their earlier siblings let them, whole subtrees at once. The node `ahead`, if any, stands before all its siblings. */
function layout(parents, ahead = -1) {
  const depth = parents.map(() => 0), row = parents.map(() => 0), below = parents.map(() => 0);
  const children = parents.map(() => []);
  for (let node = 1; node < parents.length; node++) {
    depth[node] = depth[parents[node]] + 1;
    children[parents[node]][node === ahead ? "unshift" : "push"](node);
  }
  const outlines = []; // of a subtree: the first and the last row it uses at each depth, its own top at 0
  for (let node = parents.length - 1; node >= 0; node--) {
    const first = [0], last = [0];
    for (const child of children[node]) {
      const own = outlines[child];
      for (let d = 0; d < own.first.length && d + 1 < last.length; d++) {
        below[child] = Math.max(below[child], last[d + 1] + 1 - own.first[d]);
      }
      own.first.forEach((top, d) => {
        if (d + 1 === first.length) first.push(top + below[child]);
        last[d + 1] = own.last[d] + below[child];
      });
      outlines[child] = null;
    }
    outlines[node] = { first, last };
  }
  for (let node = 1; node < parents.length; node++) row[node] = row[parents[node]] + below[node];
  return { depth, row };
}

/** Where in the output each step's tokens begin. */
function starts(turn) {
  let next = 1;
  return turn.steps.emitted.map((n) => (next += n) - n);
}

/** Source index of every output token; `target` is that of the prefill's token and of every bonus. */
function origins(turn, target) {
  const { emitted, path, sources } = turn.steps;
  const ofStep = (n, k) => Array.from({ length: n }, (_, i) => sources[k][path[k][i + 1]] ?? target);
  return [target, ...emitted.flatMap(ofStep)];
}

/** The step that emitted the output token at `position`, or the nearest there is. */
function stepAt(turn, position) {
  const from = starts(turn);
  let step = 0;
  while (step + 1 < from.length && from[step + 1] <= position) step++;
  return step;
}

/** The nodes of a step's tree, the bonus as a last one: {token, parent, source, depth, row, state}.
 *
 * The bonus has no rank among the drafted ones; it stands ahead of them, so that what is emitted reads on straight.
 * state: root, accepted, cut (accepted, but after the stop id or the limit), tested (its parent was accepted, it was
 * not), untested, bonus. */
function nodesOf(turn, outputIds, step, target) {
  const column = (name) => turn.steps[name][step];
  const path = column("path"), emitted = column("emitted");
  const accepted = new Set(path.slice(0, emitted + 1)), matched = new Set(path);
  const parents = [...column("parents")], tokens = [...column("tokens")], sources = [...column("sources")];
  const states = parents.map((parent, node) => {
    if (node === 0) return "root";
    if (accepted.has(node)) return "accepted";
    if (matched.has(node)) return "cut";
    return accepted.has(parent) ? "tested" : "untested";
  });
  if (emitted === path.length) {
    parents.push(path[path.length - 1]);
    tokens.push(outputIds[starts(turn)[step] + emitted - 1]);
    sources.push(target);
    states.push("bonus");
  }
  const { depth, row } = layout(parents, states.indexOf("bonus"));
  return parents.map((parent, i) => ({
    token: tokens[i], parent, source: sources[i], depth: depth[i], row: row[i], state: states[i],
  }));
}

/** The drafted nodes whose parent was accepted, whether or not they were: as benchmarks/metrics.py counts. */
function testedOf(nodes) {
  const reached = (node) => node && (node.state === "root" || node.state === "accepted");
  return nodes.filter((node) => node.state !== "bonus" && reached(nodes[node.parent]));
}

/** At most `most` letters, the last an ellipsis where some are left out. */
function shortened(label, most) {
  const letters = Array.from(label);
  return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : label;
}

/** Nodes with boxes in pixels: {x, y, width, label} each, and the size of the whole. Wide letters count double. */
function boxes(nodes, labelOf) {
  const width = (label) => 12 + 7.3 * Array.from(label).reduce((sum, c) => sum + (c >= "\u1100" ? 1.75 : 1), 0);
  const placed = nodes.map((node) => ({ ...node, label: shortened(labelOf(node.token), 14) }));
  const widest = [];
  for (const node of placed) {
    node.width = Math.max(26, width(node.label));
    widest[node.depth] = Math.max(widest[node.depth] ?? 0, node.width);
  }
  const left = [PAD];
  widest.forEach((w, d) => left.push(left[d] + w + GAP));
  for (const node of placed) {
    node.x = left[node.depth];
    node.y = PAD + node.row * ROW;
  }
  const rows = Math.max(...nodes.map((node) => node.row)) + 1;
  return { nodes: placed, width: left[widest.length] - GAP + PAD, height: 2 * PAD + rows * ROW - (ROW - BOX) };
}

const PAD = 10, GAP = 22, ROW = 23, BOX = 19; // pixels: margin, between depths, between rows, a node's height
