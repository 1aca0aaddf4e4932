// A layered layout: each connected part by itself, layers by the longest way, order by the middle of the neighbours.
// Pure: nodes and edges in, places out; the same in gives the same out.

const SWEEPS = 12;

function parts(nodes, edges) {
  const next = new Map(nodes.map((node) => [node.id, []]));
  for (const edge of edges) {
    next.get(edge.source).push(edge.target);
    next.get(edge.target).push(edge.source);
  }
  const found = [];
  const seen = new Set();
  for (const { id } of nodes) {
    if (seen.has(id)) continue;
    const part = [];
    const open = [id];
    seen.add(id);
    while (open.length) {
      const at = open.pop();
      part.push(at);
      for (const other of next.get(at)) if (!seen.has(other)) { seen.add(other); open.push(other); }
    }
    found.push(new Set(part));
  }
  return found.sort((one, other) => other.size - one.size);
}

// Edges that close a cycle are laid out the other way round: first those back to where records come from, for a service
// that shows what has become of what it emits stands at the beginning.
function backwards(ids, edges) {
  const emits = new Set(edges.filter((edge) => edge.how === "emit").map((edge) => edge.source));
  const back = new Set(edges.filter((edge) => edge.how === "view" && emits.has(edge.target)));
  const leaving = new Map(ids.map((id) => [id, []]));
  const onward = edges.filter((edge) => !back.has(edge));
  const reached = new Set(onward.map((edge) => edge.target));
  onward.forEach((edge) => leaving.get(edge.source).push(edge));
  const done = new Set();
  const path = new Set();
  const walk = (id) => {
    path.add(id);
    for (const edge of leaving.get(id)) {
      if (path.has(edge.target)) back.add(edge);
      else if (!done.has(edge.target)) walk(edge.target);
    }
    path.delete(id);
    done.add(id);
  };
  for (const id of [...ids].sort((one, other) => reached.has(one) - reached.has(other))) if (!done.has(id)) walk(id);
  return back;
}

function layersOf(ids, ways) {
  const layer = new Map(ids.map((id) => [id, 0]));
  for (let turn = 0; turn < ids.length; turn += 1) {
    for (const [source, target] of ways) layer.set(target, Math.max(layer.get(target), layer.get(source) + 1));
  }
  for (const id of ids) { // what nothing leads to stands right before what it leads to
    const after = ways.filter(([source]) => source === id).map(([, target]) => layer.get(target));
    if (!ways.some(([, target]) => target === id) && after.length) layer.set(id, Math.min(...after) - 1);
  }
  return layer;
}

function ordered(columns, links) {
  const before = new Map();
  const after = new Map();
  for (const [one, other] of links) {
    (after.get(one) ?? after.set(one, []).get(one)).push(other);
    (before.get(other) ?? before.set(other, []).get(other)).push(one);
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    const sequence = down ? columns.slice(1) : columns.slice(0, -1).reverse();
    const place = new Map(columns.flatMap((column) => column.map((id, index) => [id, index / Math.max(1, column.length)])));
    for (const column of sequence) {
      const middle = new Map(column.map((id) => {
        const near = (down ? before : after).get(id) ?? [];
        return [id, near.length ? near.reduce((sum, each) => sum + place.get(each), 0) / near.length : place.get(id)];
      }));
      column.sort((one, other) => middle.get(one) - middle.get(other));
      column.forEach((id, index) => place.set(id, index / Math.max(1, column.length)));
    }
  }
  return { before, after };
}

// Along a column, each wants to be at the middle of its neighbours, and keeps its distance.
function spread(columns, breadth, gap, { before, after }) {
  const at = new Map();
  for (const column of columns) {
    let next = 0;
    for (const id of column) { at.set(id, next + breadth(id) / 2); next += breadth(id) + gap; }
  }
  for (let turn = 0; turn < 20; turn += 1) {
    for (const column of turn % 2 ? columns : [...columns].reverse()) {
      const wish = column.map((id) => {
        const near = [...(before.get(id) ?? []), ...(after.get(id) ?? [])];
        return near.length ? near.reduce((sum, each) => sum + at.get(each), 0) / near.length : at.get(id);
      });
      const placed = [];
      column.forEach((id, index) => {
        const low = index ? placed[index - 1] + (breadth(column[index - 1]) + breadth(id)) / 2 + gap : -Infinity;
        placed.push(Math.max(wish[index], low));
      });
      const shift = placed.reduce((sum, each, index) => sum + wish[index] - each, 0) / placed.length;
      column.forEach((id, index) => at.set(id, placed[index] + shift));
    }
  }
  return at;
}

// `size` gives the width and height of a node; `down`: layers go down instead of to the right.
// Returns { boxes: Map(id → {x, y, width, height}), routes: [{edge, points, beside}], width, height }.
export function layOut(nodes, edges, size, down = false) {
  const boxes = new Map();
  const routes = [];
  let offset = 0; // of this part: all are laid below each other
  let broadest = 0;
  const step = down ? 46 : 72;
  const gap = down ? 12 : 16;
  for (const part of parts(nodes, edges)) {
    const ids = nodes.map((node) => node.id).filter((id) => part.has(id));
    const own = edges.filter((edge) => part.has(edge.source));
    const back = backwards(ids, own);
    const ways = own.map((edge) => (back.has(edge) ? [edge.target, edge.source] : [edge.source, edge.target]));
    const layer = layersOf(ids, ways);
    const bends = new Map();
    const chains = ways.map(([source, target], index) => {
      const chain = [source];
      for (let level = layer.get(source) + 1; level < layer.get(target); level += 1) {
        const bend = `bend ${index} ${level}`;
        bends.set(bend, level);
        chain.push(bend);
      }
      return [...chain, target];
    });
    const lowest = Math.min(...ids.map((id) => layer.get(id)));
    const columns = [];
    for (const [id, level] of [...ids.map((each) => [each, layer.get(each)]), ...bends]) (columns[level - lowest] ??= []).push(id);
    for (let level = 0; level < columns.length; level += 1) columns[level] ??= [];
    const links = chains.flatMap((chain) => chain.slice(1).map((id, index) => [chain[index], id]));
    const near = ordered(columns, links);
    const breadth = (id) => (bends.has(id) ? 8 : size(id)[down ? "width" : "height"]);
    const across = spread(columns, breadth, gap, near);
    const low = Math.min(...[...across].map(([id, at]) => at - breadth(id) / 2));
    const high = Math.max(...[...across].map(([id, at]) => at + breadth(id) / 2));
    let along = 0;
    const middle = new Map();
    for (const column of columns) {
      const depth = Math.max(...column.map((id) => (bends.has(id) ? 0 : size(id)[down ? "height" : "width"])), 0);
      for (const id of column) middle.set(id, along + depth / 2);
      along += depth + step;
    }
    const point = (id) => {
      const a = middle.get(id);
      const b = across.get(id) - low;
      return down ? { x: b, y: a + offset } : { x: a, y: b + offset };
    };
    for (const id of ids) boxes.set(id, { ...point(id), ...size(id) });
    own.forEach((edge, index) => {
      const chain = chains[index];
      const points = chain.map(point);
      const [first, last] = [size(chain[0]), size(chain.at(-1))];
      if (down) { points[0].y += first.height / 2; points.at(-1).y -= last.height / 2; }
      else { points[0].x += first.width / 2; points.at(-1).x -= last.width / 2; }
      const beside = back.has(edge) && chain.length === 2; // a loop: the two are joined the other way too
      routes.push({ edge, points: back.has(edge) ? points.reverse() : points, beside });
    });
    offset += (down ? along - step : high - low) + 34;
    broadest = Math.max(broadest, down ? high - low : along - step);
  }
  return { boxes, routes, width: broadest, height: Math.max(0, offset - 34) };
}
