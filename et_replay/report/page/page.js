"use strict";
(() => {
// ---- the data -----------------------------------------------------------------------------

// Blocks are kept in order of their start. Of every CHUNK of them the latest end is known, so
// that looking for what lives in a few rows skips all that died before.
const CHUNK = 128;

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
// Numbers come as the bytes of a column; `types` says of which kind each is.
function columns(source, types) {
  return Object.fromEntries(Object.entries(types).map(
    ([name, type]) => [name, new type(bytesOf(source?.[name] || "").buffer)]));
}
const BOXES = {start: Int32Array, end: Int32Array, y: Float64Array, size: Float64Array};

function lowerBound(sorted, value, key = item => item) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (key(sorted[middle]) < value) low = middle + 1; else high = middle;
  }
  return low;
}

function sortByStart(columns) {
  const {start} = columns;
  if (start.every((row, i) => i === 0 || start[i - 1] <= row)) return;
  const order = Int32Array.from(start.keys()).sort((a, b) => start[a] - start[b] || a - b);
  for (const name of Object.keys(columns)) columns[name] = columns[name].map((_, i, all) => all[order[i]]);
}

function orderByEnd(end) { // a counting sort: a million blocks in some milliseconds
  const place = new Int32Array(rows + 2), order = new Int32Array(end.length);
  for (const row of end) place[row + 1]++;
  for (let row = 0; row <= rows; row++) place[row + 1] += place[row];
  for (let b = 0; b < end.length; b++) order[place[end[b]]++] = b;
  return order;
}

function latestEnds(end) {
  const latest = new Int32Array(Math.ceil(end.length / CHUNK)).fill(-1);
  for (let b = 0; b < end.length; b++) latest[b >> 7] = Math.max(latest[b >> 7], end[b]);
  return latest;
}

const data = JSON.parse(document.getElementById("data").textContent);
const rows = Math.max(1, data.rows);
const classes = data.classes;
const makers = data.origins.maker, withins = data.origins.within;
const classOfOrigin = bytesOf(data.origins.class || "");
const steps = {...data.steps, ...columns(data.steps, {row: Int32Array, name: Int32Array})};

function readMap(source) {
  const blocks = columns(source.blocks, {...BOXES, requested: Float64Array, origin: Int32Array});
  sortByStart(blocks);
  const segments = columns(source.segments, BOXES);
  let top = 1;
  for (const {y, size} of [segments, blocks]) for (let i = 0; i < y.length; i++) top = Math.max(top, y[i] + size[i]);
  return {source, blocks, segments, top, ...columns(source, {allocated: Float64Array, reserved: Float64Array}),
          ranges: columns(source.ranges, {y: Float64Array, address: Float64Array}),
          kind: Uint8Array.from(blocks.origin, origin => classOfOrigin[origin] ?? classes.length - 1),
          byEnd: orderByEnd(blocks.end), latestEnd: latestEnds(blocks.end),
          peak: Math.min(rows - 1, Math.max(0, source.peak_row ?? 0)), failures: source.failures || []};
}

const read = new Map(); // a tab's columns are decoded when it is first shown
function mapOf(tab) {
  if (!read.has(tab)) read.set(tab, readMap(data.maps[tab]));
  return read.get(tab);
}

function eachAlive(map, first, last, visit) { // blocks that live in some of the rows [first, last)
  const {start, end} = map.blocks, until = lowerBound(start, last);
  for (let from = 0; from < until; from += CHUNK) {
    if (map.latestEnd[from / CHUNK] <= first) continue;
    const to = Math.min(until, from + CHUNK);
    for (let b = from; b < to; b++) if (end[b] > first) visit(b);
  }
}

function totals(row) {
  const map = mapOf(view.tab), sums = new Float64Array(classes.length);
  eachAlive(map, row, row + 1, b => { sums[map.kind[b]] += map.blocks.size[b]; });
  return {allocated: map.allocated[row], reserved: map.reserved[row],
          by_class: Object.fromEntries(classes.map((name, c) => [name, sums[c]]))};
}

function addressOf(map, y) {
  const {ranges} = map, i = lowerBound(ranges.y, y + 1) - 1;
  return i < 0 ? y : ranges.address[i] + (y - ranges.y[i]);
}

// ---- words --------------------------------------------------------------------------------

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
function bytesText(size) {
  let value = Math.abs(size), power = 0;
  while (value >= 1023.5 && power < 5) { value /= 1024; power++; }
  const digits = power === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return (size < 0 ? "-" : "") + value.toFixed(digits) + " " + UNITS[power];
}
function tickText(value, step) { // in the unit of the step where three digits would not tell ticks apart
  const unit = Math.floor(Math.log2(step) / 10), own = value ? Math.floor(Math.log2(value) / 10) : 0;
  return step >= 1024 ** own / 4 ? bytesText(value) : `${(value / 1024 ** unit).toLocaleString("en")} ${UNITS[unit]}`;
}
const exactly = size => `${size.toLocaleString("en")} bytes`;
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const eventText = row => row < 0 ? "before the first" : `event ${row.toLocaleString("en")}`;

// Names come from files: characters that steer a terminal or turn the text round are replaced.
const shown = text => String(text ?? "").replace(/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g, "\ufffd");
const short = text => { const whole = shown(text).replace(/^(?:[^/ ]*\/)+(?=[^/]+\.py:)/, ""); return whole.length > 80 ? whole.slice(0, 79) + "…" : whole; };
const makerOf = (map, b) => makers[map.blocks.origin[b]] || (map.blocks.start[b] < 0 ? "(before the first event)" : "(not known)");
const innermost = within => short(within).split(" > ").pop();

// ---- the page's elements ------------------------------------------------------------------

const $ = id => document.getElementById(id);
function element(tag, text, properties = {}) { // the only way data reaches the page: as text
  const made = Object.assign(document.createElement(tag), properties);
  if (text !== undefined) made.textContent = text;
  return made;
}
function describe(list, pairs) { // fill a <dl>
  list.replaceChildren(...pairs.map(([term, text, whole]) => {
    const group = element("div");
    group.append(element("dt", term), element("dd", text, {title: whole ?? ""}));
    return group;
  }));
}

const view = {tab: 0, first: 0, last: rows, low: 0, high: 1, cursor: 0, held: false, hovered: -1,
              selected: -1, query: "", matches: null, hidden: new Set(), grouped: false};
const hooks = window.et_replay = {data, view, draw, totals, select, last_draw_ms: 0};
Object.defineProperty(hooks, "map", {get: () => mapOf(view.tab)});

// ---- colours and patterns -----------------------------------------------------------------

// Okabe and Ito's colours, with a pattern each for those who see none of them.
const COLOURS = ["#0072b2", "#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#f0e442", "#e69f00", "#999999"];
const PATTERNS = [
  () => false,                                // plain
  (x, y) => x % 4 === 1 && y % 4 === 1,       // dots
  (x, y) => y % 4 === 0,                      // lying lines
  () => false,                                // plain
  (x, y) => x % 4 === 0,                      // standing lines
  (x, y) => (x + 8 - y) % 8 === 0,            // falling lines
  (x, y) => x % 4 === 0 || y % 4 === 0,       // a grid
  (x, y) => ((x >> 1) + (y >> 1)) % 2 === 0,  // a chequerboard
];
const rising = (x, y) => (x + y) % 8 === 0;   // the hatching, kept for free space
const parts = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
const blend = (one, other, share) => parts(one).map((part, i) => Math.round(part + (parts(other)[i] - part) * share));
const packed = ([red, green, blue]) => (255 << 24 | blue << 16 | green << 8 | red) >>> 0;

function tile(ground, ink, pattern) { // 8 by 8 pixels, repeated over what is painted
  const made = new Uint32Array(64);
  for (let i = 0; i < 64; i++) made[i] = packed(pattern(i & 7, i >> 3) ? ink : ground);
  return made;
}

let theme;
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const colour = name => style.getPropertyValue("--" + name).trim();
  theme = Object.fromEntries(["ink", "quiet", "page", "edge", "mark", "peak", "focus", "muted"].map(name => [name, colour(name)]));
  const empty = colour("empty"), black = "#000000";
  theme.empty = packed(parts(empty));
  theme.outline = packed(parts(colour("outline")));
  theme.held = packed(parts(theme.edge));
  theme.free = tile(parts(colour("free")), parts(colour("hatch")), rising);
  theme.off = tile(parts(theme.muted), parts(theme.muted), () => false);
  const each = make => classes.map((_, c) => make(COLOURS[c % 8], PATTERNS[c % 8]));
  theme.bright = each((colour, pattern) => tile(parts(colour), blend(colour, black, .28), pattern));
  theme.dim = each((colour, pattern) => tile(blend(colour, empty, .78), blend(colour, empty, .7), pattern));
  theme.rim = each(colour => packed(blend(colour, black, .5)));
}

// ---- painting -----------------------------------------------------------------------------

const GUTTER = 84, RIGHT = 10; // left for the axis' labels, in CSS pixels
const FONT = "12px system-ui, sans-serif";

class Plot { // two canvases, one for the picture and one for what follows the mouse
  constructor(id, bottom) {
    this.box = $(id);
    [this.base, this.over] = this.box.querySelectorAll("canvas");
    this.bottom = bottom;
  }
  resize() {
    this.scale = window.devicePixelRatio || 1;
    const {clientWidth, clientHeight} = this.box;
    for (const canvas of [this.base, this.over]) {
      canvas.width = Math.round(clientWidth * this.scale);
      canvas.height = Math.round(clientHeight * this.scale);
    }
    this.width = Math.max(20, clientWidth - GUTTER - RIGHT);
    this.height = Math.max(20, clientHeight - this.bottom);
    this.columns = Math.round(this.width * this.scale);
    this.lines = Math.round(this.height * this.scale);
    this.image = new ImageData(this.columns, this.lines);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.owner = new Int32Array(this.columns * this.lines); // whose a pixel is: block + 1, 0 for none
  }
  clear(colour) { this.pixels.fill(colour); this.owner.fill(0); }
  fill(left, top, right, bottom, pattern, owner = 0, onlyFree = false) { // onlyFree: where no block is yet
    const {pixels, owner: owners, columns} = this;
    for (let y = top; y < bottom; y++) {
      const row = (y & 7) << 3;
      for (let x = left, i = y * columns + left; x < right; x++, i++) {
        if (onlyFree && owners[i]) continue;
        pixels[i] = pattern[row | x & 7];
        owners[i] = owner;
      }
    }
  }
  across(left, right, y, colour) { if (y >= 0 && y < this.lines) this.pixels.fill(colour, y * this.columns + left, y * this.columns + right); }
  down(top, bottom, x, colour) { for (let y = top; y < bottom; y++) this.pixels[y * this.columns + x] = colour; }
  pen(canvas) { // draws in CSS pixels, with the plot's corner at 0, 0
    const pen = canvas.getContext("2d");
    pen.setTransform(this.scale, 0, 0, this.scale, GUTTER * this.scale, 0);
    pen.font = FONT;
    pen.textBaseline = "middle";
    return pen;
  }
  show() {
    const pen = this.pen(this.base);
    pen.clearRect(-GUTTER, 0, this.width + GUTTER + RIGHT, this.height + this.bottom);
    pen.putImageData(this.image, Math.round(GUTTER * this.scale), 0);
    return pen;
  }
}
const plots = {map: new Plot("map", 2), stack: new Plot("stack", 36)};

const span = () => view.last - view.first;
const xOf = (plot, row) => (row - view.first) / span() * plot.width;
const yOf = (plot, y) => (view.high - y) / (view.high - view.low) * plot.height;

// The box in pixels of something that lives in rows [start, end) at [y, y + size); `thin` where it
// covers less than a pixel and is given a whole one.
const box = {left: 0, top: 0, right: 0, bottom: 0, thin: false};
function place(plot, start, end, y, size) {
  const {columns, lines} = plot, perRow = columns / span(), perByte = lines / (view.high - view.low);
  box.left = Math.min(columns - 1, Math.max(0, Math.round((start - view.first) * perRow)));
  box.right = Math.min(columns, Math.round((end - view.first) * perRow));
  box.top = Math.min(lines - 1, Math.max(0, Math.round((view.high - y - size) * perByte)));
  box.bottom = Math.min(lines, Math.round((view.high - y) * perByte));
  box.thin = box.right <= box.left || box.bottom <= box.top;
  box.right = Math.max(box.right, box.left + 1);
  box.bottom = Math.max(box.bottom, box.top + 1);
  return y < view.high && y + size > view.low;
}

function eachSegment(map, visit) {
  const {start, end, y, size} = map.segments;
  for (let s = 0; s < start.length; s++) {
    if (start[s] < view.last && end[s] > view.first && place(plots.map, start[s], end[s], y[s], size[s])) visit(s);
  }
}

const shows = (map, b) => !view.matches || view.matches[map.blocks.origin[b]] === 1;
const patternOf = (map, b) => view.hidden.has(map.kind[b]) ? theme.off : (shows(map, b) ? theme.bright : theme.dim)[map.kind[b]];

function paintBlock(map, b) {
  const plot = plots.map, {start, end, y, size} = map.blocks;
  if (!place(plot, start[b], end[b], y[b], size[b])) return;
  const {left, top, right, bottom, thin} = box, pattern = patternOf(map, b);
  plot.fill(left, top, right, bottom, pattern, b + 1, thin && !(view.matches && shows(map, b)));
  if (right - left > 3 && bottom - top > 3) { // a rim on two sides tells neighbours apart
    const colour = pattern === theme.bright[map.kind[b]] ? theme.rim[map.kind[b]] : pattern[0];
    plot.across(left, right, bottom - 1, colour);
    plot.down(top, bottom, right - 1, colour);
    if (right - left > 56 * plot.scale && bottom - top > 13 * plot.scale) named.push([b, left, top, right, bottom]);
  }
}

let named = []; // blocks with room for their operation's name
function drawMap(map) {
  const plot = plots.map;
  plot.clear(theme.empty);
  eachSegment(map, () => plot.fill(box.left, box.top, box.right, box.bottom, theme.free));
  named = [];
  const first = Math.floor(view.first), last = Math.ceil(view.last);
  eachAlive(map, first, last, b => { if (!view.matches || !shows(map, b)) paintBlock(map, b); });
  if (view.matches) eachAlive(map, first, last, b => { if (shows(map, b)) paintBlock(map, b); }); // over the others
  eachSegment(map, s => {
    if (box.bottom - box.top < 5) return; // no room for a line on either side
    plot.across(box.left, box.right, box.top, theme.outline);
    plot.across(box.left, box.right, box.bottom - 1, theme.outline);
    if (map.segments.start[s] > view.first) plot.down(box.top, box.bottom, box.left, theme.outline);
    if (map.segments.end[s] < view.last) plot.down(box.top, box.bottom, box.right - 1, theme.outline);
  });
  const pen = plot.show();
  nameBlocks(pen, plot, map);
  byteAxis(pen, plot, view.low, view.high, "address");
  marks(pen, plot, map, false);
}

function nameBlocks(pen, plot, map) {
  named.sort((a, b) => (b[3] - b[1]) * (b[4] - b[2]) - (a[3] - a[1]) * (a[4] - a[2]));
  for (const [b, ...edges] of named.slice(0, 300)) {
    if (!shows(map, b) || view.hidden.has(map.kind[b])) continue;
    const [left, top, right, bottom] = edges.map(edge => edge / plot.scale);
    const name = makers[map.blocks.origin[b]] || classes[map.kind[b]];
    const text = fitting(pen, `${short(name)}  ${bytesText(map.blocks.size[b])}`, right - left - 10);
    if (text) chip(pen, text, left + 3, (top + bottom) / 2, theme.ink, theme.page, .8);
  }
}

function fitting(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let keep = Math.floor(text.length * width / pen.measureText(text).width) - 1;
  while (keep > 3 && pen.measureText(text.slice(0, keep) + "…").width > width) keep--;
  return keep > 3 ? text.slice(0, keep) + "…" : "";
}

function chip(pen, text, x, y, ink, ground, opacity = 1) { // text on a ground of its own, readable anywhere
  pen.globalAlpha = opacity;
  pen.fillStyle = ground;
  pen.fillRect(x - 2, y - 7, pen.measureText(text).width + 5, 14);
  pen.globalAlpha = 1;
  pen.fillStyle = ink;
  pen.fillText(text, x, y + .5);
}

function byteAxis(pen, plot, low, high, title) {
  const step = 2 ** Math.ceil(Math.log2(Math.max(1, (high - low) / Math.max(2, plot.height / 34))));
  pen.fillStyle = theme.quiet;
  pen.font = "11px system-ui, sans-serif"; // the longest is of eight digits
  pen.textAlign = "right";
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) {
    const y = (high - value) / (high - low) * plot.height;
    pen.fillRect(-4, y, 4, 1);
    if (y > 18 && y < plot.height + 3) pen.fillText(tickText(value, step), -7, Math.min(plot.height - 6, y));
  }
  pen.fillText(title, -7, 7);
  pen.textAlign = "left";
  pen.font = FONT;
}

function eventAxis(pen, plot) {
  const rough = Math.max(1, span() / Math.max(2, plot.width / 110)), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(digit => digit * power).find(value => value >= rough);
  pen.textAlign = "center";
  pen.fillStyle = theme.quiet;
  for (let row = Math.ceil(view.first / step) * step; row <= view.last; row += step) {
    const x = xOf(plot, row);
    pen.fillRect(x, plot.height, 1, 4);
    if (x > 8 && x < plot.width - 14) pen.fillText(row.toLocaleString("en"), x, plot.height + 12);
  }
  pen.fillText("event", plot.width / 2, plot.height + 27);
  pen.textAlign = "left";
}

function marks(pen, plot, map, worded) { // the peak and the failures, lines with labels that keep apart
  const all = map.failures.map(({row, requested_bytes: wanted}) =>
    [row, worded && wanted ? `out of memory: wanted ${bytesText(wanted)}` : "out of memory", theme.mark]);
  all.unshift([map.peak, worded ? `peak ${bytesText(map.source.peak_allocated_bytes)}` : "peak", theme.peak]);
  const ends = [-Infinity, -Infinity, -Infinity], labels = []; // of the labels in each of three lines
  let last = -Infinity, lastColour = "";
  for (const [row, text, colour] of all.sort((a, b) => a[0] - b[0])) {
    const x = xOf(plot, row + .5);
    const close = colour === lastColour && x - last < .7; // one of a kind a pixel is enough
    if (x < 0 || x > plot.width || close) continue;
    if (x - last > 5) { // a light line under a dark one is seen on any colour
      pen.fillStyle = theme.page;
      pen.fillRect(x - 1.5, 0, 4, plot.height);
    }
    pen.fillStyle = colour; // where failures crowd, all but the first are short, not to hide the blocks
    pen.fillRect(x - .5, 0, 2, x - last < 5 && colour === theme.mark ? 8 : plot.height);
    last = x;
    lastColour = colour;
    const width = pen.measureText(text).width + 6, left = x + 5 + width > plot.width ? x - width - 3 : x + 5;
    const line = ends.findIndex(end => end < left);
    if (line < 0 || (line > 0 && labels.at(-1)[0] === text)) continue; // a cluster is named once
    ends[line] = left + width + 4;
    labels.push([text, left + 2, 9 + 16 * line, colour]);
  }
  for (const [text, x, y, colour] of labels) chip(pen, text, x, y, colour, theme.page);
}

// ---- the stack ----------------------------------------------------------------------------

// The live bytes of each class as they run from row to row; what is searched for lies at the bottom.
class RunningSums {
  constructor(map, row) {
    this.map = map;
    this.row = row;
    this.sums = new Float64Array(2 * classes.length);
    eachAlive(map, row, row + 1, b => this.add(b, 1));
    this.started = lowerBound(map.blocks.start, row + 1);
    this.ended = lowerBound(map.byEnd, row + 1, b => map.blocks.end[b]);
  }
  add(b, sign) {
    const place = this.map.kind[b] + (shows(this.map, b) ? 0 : classes.length);
    this.sums[place] += sign * this.map.blocks.size[b];
  }
  advance(row) {
    const {start, end} = this.map.blocks, {byEnd} = this.map;
    while (this.started < start.length && start[this.started] <= row) this.add(this.started++, 1);
    while (this.ended < byEnd.length && end[byEnd[this.ended]] <= row) this.add(byEnd[this.ended++], -1);
  }
}

function highestRow(values, from, to) {
  let best = from;
  for (let row = from + 1; row < to; row++) if (values[row] > values[best]) best = row;
  return best;
}

// The row that a column of pixels stands for: the one with most allocated, so that no peak is lost.
function rowOfColumn(map, column) {
  const perColumn = span() / plots.stack.columns, from = view.first + column * perColumn;
  const row = Math.min(rows - 1, Math.max(0, Math.floor(from + (perColumn < 1 ? perColumn / 2 : 0))));
  return perColumn < 1 ? row : highestRow(map.allocated, row, Math.min(rows, Math.max(row + 1, Math.floor(from + perColumn))));
}

function drawStack(map) {
  const plot = plots.stack, {peak_reserved_bytes: reserved, peak_allocated_bytes: allocated} = map.source;
  const most = Math.max(1, reserved, allocated), capacity = map.source.capacity_bytes || 0;
  const far = capacity > 2 * most, top = 1.12 * (far ? most : Math.max(most, capacity)); // far: it would press the rest flat
  plot.clear(theme.empty);
  const sums = new RunningSums(map, rowOfColumn(map, 0)), lineOf = bytes => Math.round(plot.lines * (1 - bytes / top));
  let before = -1;
  for (let column = 0; column < plot.columns; column++) {
    const row = rowOfColumn(map, column);
    sums.advance(row);
    let below = 0;
    const reserved = lineOf(Math.max(map.reserved[row], map.allocated[row]));
    plot.fill(column, Math.max(0, reserved), column + 1, plot.lines, theme.free);
    for (let i = 0; i < sums.sums.length; i++) {
      const kind = i % classes.length, bytes = sums.sums[i];
      if (!bytes || view.hidden.has(kind)) continue;
      plot.fill(column, Math.max(0, lineOf(below + bytes)), column + 1, lineOf(below), (i < classes.length ? theme.bright : theme.dim)[kind]);
      below += bytes;
    }
    const line = lineOf(map.reserved[row]), from = before < 0 ? line : Math.min(before, line);
    plot.down(Math.max(0, from - 1), Math.min(plot.lines, Math.max(before, line) + 1), column, theme.held);
    before = line;
  }
  const pen = plot.show();
  byteAxis(pen, plot, 0, top, "bytes");
  eventAxis(pen, plot);
  if (capacity) drawCapacity(pen, plot, capacity, far, top);
  const held = map.reserved[rowOfColumn(map, Math.floor(plot.columns * .9))] || 0;
  chip(pen, "reserved", plot.width * .9 - 50, plot.height * (1 - held / top) - 10, theme.ink, theme.page, .7);
  marks(pen, plot, map, true);
}

function drawCapacity(pen, plot, capacity, far, top) {
  const text = `capacity ${bytesText(capacity)}` + (far ? " (above this picture)" : "");
  const y = far ? 1 : plot.height * (1 - capacity / top);
  pen.strokeStyle = theme.mark;
  pen.setLineDash([7, 4]);
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(0, y);
  pen.lineTo(plot.width, y);
  pen.stroke();
  pen.setLineDash([]);
  chip(pen, text, 6, y + 10, theme.mark, theme.page);
}

// ---- what follows the mouse ---------------------------------------------------------------

function drawOver(map) {
  for (const plot of Object.values(plots)) {
    const pen = plot.pen(plot.over);
    pen.clearRect(-GUTTER, 0, plot.width + GUTTER + RIGHT, plot.height + plot.bottom);
    pen.save();
    pen.beginPath();
    pen.rect(0, 0, plot.width, plot.height);
    pen.clip();
    const x = xOf(plot, view.cursor + .5);
    pen.fillStyle = theme.focus;
    pen.fillRect(x - .75, 0, 1.5, plot.height);
    if (plot === plots.map) for (const b of new Set([view.hovered, view.selected])) outline(pen, plot, map, b);
    pen.restore();
  }
}

function outline(pen, plot, map, b) {
  if (b < 0) return;
  const {start, end, y, size} = map.blocks;
  const left = Math.max(-4, xOf(plot, start[b])), right = Math.min(plot.width + 4, xOf(plot, end[b]));
  const top = Math.max(-4, yOf(plot, y[b] + size[b])), bottom = Math.min(plot.height + 4, yOf(plot, y[b]));
  for (const [width, colour] of [[5, theme.page], [2.5, b === view.selected ? theme.focus : theme.ink]]) {
    pen.lineWidth = width;
    pen.strokeStyle = colour;
    pen.strokeRect(left, top, Math.max(2, right - left), Math.max(2, bottom - top));
  }
}

function draw() {
  const began = performance.now(), map = mapOf(view.tab);
  drawMap(map);
  drawStack(map);
  drawOver(map);
  hooks.last_draw_ms = performance.now() - began;
}

const due = {};
function soon(name, work) { // once a frame, however many events ask for it
  if (due[name]) return;
  due[name] = requestAnimationFrame(() => { due[name] = 0; work(); });
}
const redraw = () => soon("draw", draw);
const follow = () => { soon("over", () => drawOver(mapOf(view.tab))); soon("panel", fillPanel); };

// ---- the panel ----------------------------------------------------------------------------

function fillPanel() {
  const map = mapOf(view.tab), row = view.cursor, failed = map.failures.find(failure => failure.row === row);
  const allocated = map.allocated[row] ?? 0, reserved = map.reserved[row] ?? 0;
  $("moment").textContent = `At event ${row.toLocaleString("en")}` + (row === map.peak ? ", the peak" : "") +
    (view.held ? " (held: Esc lets go)" : "");
  const step = lowerBound(steps.row, row + 1) - 1, operation = shown(steps.names?.[steps.name[step]]);
  $("during").textContent = failed ? shown(failed.message) : step < 0 ? "" : `in ${operation}`;
  $("during").className = failed ? "failed" : "";
  describe($("totals"), [["live", bytesText(allocated), exactly(allocated)], ["reserved", bytesText(reserved), exactly(reserved)],
    ["reserved, not allocated", bytesText(reserved - allocated), exactly(reserved - allocated)]]);
  const alive = [];
  eachAlive(map, row, row + 1, b => alive.push(b));
  fillTable(map, alive);
  fillFound(map, alive);
  fillBlock(map, view.selected >= 0 ? view.selected : view.hovered);
}

function fillBlock(map, b) {
  $("block-title").textContent = b < 0 ? "Block" : b === view.selected ? "Selected block" : "Block under the mouse";
  if (b < 0) return describe($("block"), [["", "Point at a block in the map, or press Enter, j or k."]]);
  const {start, end, size, requested, y, origin} = map.blocks, died = end[b] >= rows;
  describe($("block"), [
    ["made by", shown(makerOf(map, b))], ["within", shown(withins[origin[b]]) || "(no annotation)"], ["class", classes[map.kind[b]]],
    ["size", `${bytesText(size[b])} (${exactly(size[b])})`], ["requested", `${bytesText(requested[b])} (${exactly(requested[b])})`],
    ["address", "0x" + addressOf(map, y[b]).toString(16)],
    ["lifetime", `${eventText(start[b])} to ${died ? "the end (never freed)" : eventText(end[b])}: ${count(end[b] - Math.max(0, start[b]), "event")}`],
  ]);
}

function largestRows(map, alive) { // [bytes, block to select, text of the last column]
  const {size, start, origin} = map.blocks;
  if (!view.grouped) {
    return alive.sort((a, b) => size[b] - size[a] || a - b).slice(0, 20)
      .map(b => [size[b], b, start[b] < 0 ? "start" : start[b].toLocaleString("en")]);
  }
  const groups = new Map();
  for (const b of alive) {
    const group = groups.get(origin[b]);
    if (!group) groups.set(origin[b], {bytes: size[b], largest: b, blocks: 1});
    else { group.bytes += size[b]; group.blocks++; if (size[b] > size[group.largest]) group.largest = b; }
  }
  return [...groups.values()].sort((a, b) => b.bytes - a.bytes || a.largest - b.largest).slice(0, 20)
    .map(group => [group.bytes, group.largest, group.blocks.toLocaleString("en")]);
}

function fillTable(map, alive) {
  const body = $("largest").tBodies[0], focused = [...body.rows].indexOf(document.activeElement);
  $("since").textContent = view.grouped ? "blocks" : "since";
  body.replaceChildren(...largestRows(map, alive).map(([bytes, b, last], i) => {
    const line = element("tr", undefined, {tabIndex: i === Math.max(0, focused) ? 0 : -1});
    line.dataset.block = b;
    line.setAttribute("aria-selected", b === view.selected);
    const kind = element("td", undefined, {title: classes[map.kind[b]]}), swatch = element("span", undefined, {className: "swatch"});
    swatch.style.background = COLOURS[map.kind[b] % 8];
    kind.append(swatch, classes[map.kind[b]]);
    const maker = shown(makerOf(map, b)), within = shown(withins[map.blocks.origin[b]]);
    line.append(element("td", bytesText(bytes), {title: exactly(bytes)}), kind, element("td", short(maker), {title: maker}),
                element("td", innermost(withins[map.blocks.origin[b]]), {title: within}), element("td", last));
    return line;
  }));
  if (focused >= 0) body.rows[Math.min(focused, body.rows.length - 1)]?.focus();
}

function fillFound(map, alive) {
  if (!view.matches) { $("found").textContent = ""; return; }
  let bytes = 0, live = 0, all = 0;
  for (const b of alive) if (shows(map, b)) { bytes += map.blocks.size[b]; live++; }
  for (const origin of map.blocks.origin) all += view.matches[origin] ?? 0;
  $("found").textContent = `${count(all, "block")}; at the cursor ${live.toLocaleString("en")}, ${bytesText(bytes)}` + (all ? " (n, N: next, previous)" : "");
}

function fillFigures(map) {
  const {source, peak, blocks} = map, made = lowerBound(blocks.start, peak);
  const idle = map.reserved[peak] - map.allocated[peak], bytes = size => [bytesText(size), exactly(size)];
  const figures = [["peak allocated", ...bytes(source.peak_allocated_bytes)], ["peak reserved", ...bytes(source.peak_reserved_bytes)],
    ["reserved but unallocated at the peak", ...bytes(idle || 0)],
    ["capacity", ...(source.capacity_bytes ? bytes(source.capacity_bytes) : ["not set"])],
    ["failures", map.failures.length.toLocaleString("en")]];
  if (blocks.start[made] === peak) {
    const maker = shown(makerOf(map, made));
    figures.push([`peak reached at event ${peak.toLocaleString("en")} by`, `${bytesText(blocks.size[made])}, ${short(maker)}`, maker]);
  }
  describe($("figures"), figures);
  $("failures").hidden = !map.failures.length;
  $("failures").replaceChildren(...map.failures.slice(0, 3).map(failure => element("button",
    `Event ${failure.row.toLocaleString("en")}: ${shown(failure.message)}`.slice(0, 400),
    {type: "button", title: shown(failure.message), onclick: () => moveTo(failure.row)})));
  if (map.failures.length > 3) $("failures").append(element("span", `and ${map.failures.length - 3} more: press f`));
}

function swatchOf(pattern) {
  const canvas = element("canvas", undefined, {width: 16, height: 16}), image = new ImageData(16, 16);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < 256; i++) pixels[i] = pattern[(i >> 4 & 7) << 3 | i & 7];
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function fillLegend() {
  $("legend").replaceChildren(...classes.map((name, c) => {
    const button = element("button", undefined, {type: "button", title: `Hide or show ${name}`});
    button.setAttribute("aria-pressed", !view.hidden.has(c));
    button.onclick = () => {
      if (!view.hidden.delete(c)) view.hidden.add(c);
      button.setAttribute("aria-pressed", !view.hidden.has(c));
      redraw();
    };
    button.append(swatchOf(theme.bright[c]), name);
    return button;
  }));
  const free = element("span", undefined, {className: "key"});
  free.append(swatchOf(theme.free), "reserved, not allocated");
  $("legend").append(free);
}

// ---- moving about -------------------------------------------------------------------------

function setRange(first, last) {
  const width = Math.min(rows, Math.max(4, last - first));
  view.first = Math.max(0, Math.min(rows - width, first));
  view.last = view.first + width;
  redraw();
}
function setHeights(low, high) {
  const {top} = mapOf(view.tab), height = Math.min(top, Math.max(512, high - low));
  view.low = Math.max(0, Math.min(top - height, low));
  view.high = view.low + height;
  redraw();
}
const pan = share => setRange(view.first + share * span(), view.last + share * span());
const panHeights = (share, by = share * (view.high - view.low)) => setHeights(view.low + by, view.high + by);
const scaled = (low, high, factor, around) => [around - (around - low) * factor, around + (high - around) * factor];
const zoom = (factor, around) => setRange(...scaled(view.first, view.last, factor, around));
const zoomHeights = (factor, around) => setHeights(...scaled(view.low, view.high, factor, around));
function showAll() { setRange(0, rows); setHeights(0, mapOf(view.tab).top); }
const middle = () => view.cursor >= view.first && view.cursor < view.last ? view.cursor + .5 : (view.first + view.last) / 2;
function middleHeight() {
  const {y, size} = mapOf(view.tab).blocks, b = view.selected;
  return b >= 0 && y[b] < view.high && y[b] + size[b] > view.low ? y[b] + size[b] / 2 : (view.low + view.high) / 2;
}

function moveTo(row, held = true) { // the cursor; held, the mouse no longer moves it
  view.cursor = Math.max(0, Math.min(rows - 1, row));
  view.hovered = -1;
  view.held = held;
  if (view.cursor < view.first || view.cursor >= view.last) setRange(view.cursor + .5 - span() / 2, view.cursor + .5 + span() / 2);
  follow();
}

function select(b) {
  view.selected = b;
  if (b < 0) return follow();
  const {start, end, y, size} = mapOf(view.tab).blocks;
  if (y[b] >= view.high || y[b] + size[b] <= view.low) panHeights((y[b] + size[b] / 2 - (view.low + view.high) / 2) / (view.high - view.low));
  moveTo(view.cursor < start[b] || view.cursor >= end[b] ? Math.max(0, start[b]) : view.cursor);
}

function letGo() {
  view.selected = view.hovered = -1;
  view.held = false;
  follow();
}

function selectAtCursor() { // what the mouse points at, else what this event made, else the largest
  const map = mapOf(view.tab), made = lowerBound(map.blocks.start, view.cursor);
  if (view.hovered >= 0) return select(view.hovered);
  if (map.blocks.start[made] === view.cursor) return select(made);
  select(Number(document.querySelector("#largest tbody tr")?.dataset.block ?? -1));
}

function selectBeside(direction) { // the next live block up or down the addresses
  const map = mapOf(view.tab), {y} = map.blocks, alive = [];
  eachAlive(map, view.cursor, view.cursor + 1, b => alive.push(b));
  if (!alive.length) return;
  alive.sort((a, b) => y[a] - y[b]);
  const at = alive.indexOf(view.selected);
  select(alive[at < 0 ? (direction > 0 ? 0 : alive.length - 1) : Math.max(0, Math.min(alive.length - 1, at + direction))]);
}

function search(text) {
  view.query = text.toLowerCase();
  view.matches = view.query ? Uint8Array.from(makers, maker => (maker || "").toLowerCase().includes(view.query) ? 1 : 0) : null;
  redraw();
  follow();
}

function nextMatch(direction) { // in time, round from the end to the start
  const map = mapOf(view.tab), many = map.blocks.start.length;
  if (!view.matches || !many) return;
  let b = view.selected >= 0 ? view.selected : lowerBound(map.blocks.start, view.cursor + (direction > 0 ? 0 : 1)) - (direction > 0 ? 1 : 0);
  for (let tried = 0; tried < many; tried++) {
    b = (b + direction + many) % many;
    if (!shows(map, b)) continue;
    view.cursor = Math.max(0, map.blocks.start[b]);
    return select(b);
  }
}

function nextFailure() {
  const found = mapOf(view.tab).failures.map(failure => failure.row).sort((a, b) => a - b);
  if (found.length) moveTo(found.find(row => row > view.cursor) ?? found[0]);
}

function showTab(tab) {
  view.tab = tab;
  view.selected = view.hovered = -1;
  const map = mapOf(tab);
  [view.low, view.high] = [0, map.top];
  for (const [i, button] of [...$("tabs").children].entries()) {
    button.setAttribute("aria-selected", i === tab);
    button.tabIndex = i === tab ? 0 : -1;
  }
  $("panel").setAttribute("aria-labelledby", `tab-${tab}`);
  fillFigures(map);
  redraw();
  follow();
}

// ---- the mouse ----------------------------------------------------------------------------

function pointAt(plot, event) {
  const bounds = plot.over.getBoundingClientRect(), x = event.clientX - bounds.left - GUTTER, y = event.clientY - bounds.top;
  const column = Math.max(0, Math.min(plot.columns - 1, Math.floor(x * plot.scale)));
  const line = Math.max(0, Math.min(plot.lines - 1, Math.floor(y * plot.scale)));
  const inside = x >= 0 && x < plot.width && y >= 0 && y < plot.height;
  return {row: rowOfColumn(mapOf(view.tab), column), block: inside ? plot.owner[line * plot.columns + column] - 1 : -1,
          at: view.first + x / plot.width * span(), y: view.high - y / plot.height * (view.high - view.low)};
}

function hover(plot, event) {
  const {row, block} = pointAt(plot, event);
  view.hovered = block;
  if (!view.held) view.cursor = row;
  showTip(event, block);
  follow();
}

function showTip(event, b) {
  const tip = $("tip"), map = mapOf(view.tab);
  tip.hidden = b < 0;
  if (b < 0) return;
  const {size, start, end, origin} = map.blocks;
  tip.replaceChildren(...[`${bytesText(size[b])}  ${short(makerOf(map, b))}`, classes[map.kind[b]], short(withins[origin[b]]),
    `${eventText(start[b])} to ${end[b] >= rows ? "the end" : eventText(end[b])}`].filter(Boolean).map(text => element("div", text)));
  const {width, height} = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4)) + "px";
  tip.style.top = (event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18) + "px";
}

function listen(plot) {
  let drag = null; // where it began, and the view then
  plot.over.addEventListener("pointerdown", event => {
    if (event.button) return;
    plot.over.setPointerCapture(event.pointerId);
    drag = {x: event.clientX, y: event.clientY, moved: false, ...view};
  });
  plot.over.addEventListener("pointermove", event => {
    if (!drag) return hover(plot, event);
    const right = event.clientX - drag.x, down = event.clientY - drag.y;
    drag.moved ||= Math.hypot(right, down) > 4;
    if (!drag.moved) return;
    $("tip").hidden = true;
    const by = -right / plot.width * (drag.last - drag.first), up = down / plot.height * (drag.high - drag.low);
    setRange(drag.first + by, drag.last + by);
    if (plot === plots.map) setHeights(drag.low + up, drag.high + up);
  });
  plot.over.addEventListener("pointerup", event => {
    const clicked = drag && !drag.moved;
    drag = null;
    if (!clicked) return;
    const {row, block} = pointAt(plot, event);
    view.selected = -1;
    moveTo(row);
    if (block >= 0) select(block);
  });
  plot.over.addEventListener("pointercancel", () => { drag = null; });
  plot.over.addEventListener("pointerleave", () => { view.hovered = -1; if (!view.held) view.cursor = mapOf(view.tab).peak; $("tip").hidden = true; follow(); });
  plot.over.addEventListener("dblclick", () => { letGo(); showAll(); });
  plot.over.addEventListener("wheel", event => {
    event.preventDefault();
    const {at, y} = pointAt(plot, event), turned = event.deltaY || event.deltaX;
    const factor = Math.exp(Math.max(-200, Math.min(200, turned * (event.deltaMode ? 30 : 1))) / 400);
    if (event.shiftKey) { if (plot === plots.map) zoomHeights(factor, y); }
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / 1000);
    else zoom(factor, at);
  }, {passive: false});
}

// ---- the keyboard -------------------------------------------------------------------------

const KEYS = { // anywhere but in a text box
  "p": () => moveTo(mapOf(view.tab).peak), "f": nextFailure,
  "[": () => moveTo(view.cursor - 1), "]": () => moveTo(view.cursor + 1),
  "{": () => moveTo(view.cursor - 100), "}": () => moveTo(view.cursor + 100),
  "j": () => selectBeside(-1), "k": () => selectBeside(1), "n": () => nextMatch(1), "N": () => nextMatch(-1),
  "+": () => zoom(.7, middle()), "=": () => zoom(.7, middle()), "-": () => zoom(1 / .7, middle()), "_": () => zoom(1 / .7, middle()),
  "0": showAll, "/": () => { $("search").focus(); $("search").select(); }, "?": () => $("help").showModal(), "Escape": letGo,
};
const MOVES = { // only where no tab, table or button has a use for them
  "ArrowLeft": () => pan(-.1), "ArrowRight": () => pan(.1), "ArrowUp": () => panHeights(.1), "ArrowDown": () => panHeights(-.1),
  "Shift+ArrowUp": () => zoomHeights(.7, middleHeight()), "Shift+ArrowDown": () => zoomHeights(1 / .7, middleHeight()),
  "Home": () => setRange(0, span()), "End": () => setRange(rows - span(), rows), "Enter": selectAtCursor,
};

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  const target = event.target;
  if (target === $("search")) {
    if (event.key === "Escape") { target.value = ""; search(""); target.blur(); }
    if (event.key === "Enter") { nextMatch(1); plots.map.over.focus(); event.preventDefault(); }
    return;
  }
  const arrow = event.shiftKey && event.key.startsWith("Arrow") ? "Shift+" : "";
  const free = target.matches(event.key === "Enter" ? "body, .over" : "body, .over, button");
  const act = KEYS[event.key] || (free && MOVES[arrow + event.key]);
  if (!act) return;
  event.preventDefault();
  act();
}

function pressedTab(event) {
  const step = {ArrowLeft: -1, ArrowRight: 1}[event.key], many = data.maps.length;
  const tab = step ? (view.tab + step + many) % many : {Home: 0, End: many - 1}[event.key];
  if (tab === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  showTab(tab);
  $("tabs").children[tab].focus();
}

function pressedRow(event) {
  const line = event.target.closest("tr[data-block]");
  if (!line) return;
  if (event.key === "Enter" || event.key === " ") select(Number(line.dataset.block));
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const next = event.key === "ArrowDown" ? line.nextElementSibling : line.previousElementSibling;
    if (next) { line.tabIndex = -1; next.tabIndex = 0; next.focus(); }
  } else return;
  event.preventDefault();
  event.stopPropagation();
}

// ---- begin --------------------------------------------------------------------------------

const THEMES = ["system", "light", "dark"], preference = matchMedia("(prefers-color-scheme: dark)");
let chosen = "system";
function applyTheme() {
  document.documentElement.dataset.theme = chosen !== "system" ? chosen : preference.matches ? "dark" : "light";
  $("theme").textContent = `Theme: ${chosen}`;
  readTheme();
  fillLegend();
  redraw();
}

function begin() {
  $("input").textContent = $("input").title = shown(data.input);
  document.title = `${short(data.input)}: memory`;
  $("input").append(element("small", `  ${shown(data.kind)}`));
  $("class-rule").textContent = shown(data.class_rule);
  $("tabs").append(...data.maps.map((source, tab) => element("button", shown(source.allocator),
    {type: "button", role: "tab", id: `tab-${tab}`, title: `${shown(source.allocator)}, PyTorch ${shown(source.torch_version)}`, onclick: () => showTab(tab)})));
  view.cursor = mapOf(0).peak;
  applyTheme();
  Object.values(plots).forEach(plot => { plot.resize(); listen(plot); });
  showTab(0);
  new ResizeObserver(() => { Object.values(plots).forEach(plot => plot.resize()); redraw(); }).observe($("plots"));
  preference.addEventListener("change", applyTheme);
  $("theme").onclick = () => { chosen = THEMES[(THEMES.indexOf(chosen) + 1) % 3]; applyTheme(); };
  $("help-open").onclick = () => $("help").showModal();
  $("to-peak").onclick = KEYS.p;
  $("reset").onclick = showAll;
  $("search").oninput = event => search(event.target.value);
  $("grouped").onchange = event => { view.grouped = event.target.checked; follow(); };
  $("largest").addEventListener("click", event => { const line = event.target.closest("tr[data-block]"); if (line) select(Number(line.dataset.block)); });
  $("largest").addEventListener("keydown", pressedRow);
  $("tabs").addEventListener("keydown", pressedTab);
  document.addEventListener("keydown", pressed);
}
begin();
})();
