// What the Live page draws from: samples as columns, numbers as people read them, a chart over time.
//
// The columns are the tree of GET /api/live, with a list at each leaf that has one value for each of
// `seconds`, null where nobody told the number. A sample is the same tree with one value at each
// leaf, so it is appended leaf by leaf. Of the hints only the present ones are kept.
//
// A chart's `kind` says how values are written (`text`), where the axis ends (`top`, or by itself), and
// which lines there are: {label, values}, with `steps` for what holds until it is told anew, and
// `fill` for what is an amount.

const KEPT = 600; // seconds
const GAP = 3; // seconds without a sample that a line must not bridge
const MOST_LINES = 8;
const DASHES = [[], [7, 4], [2, 3]];

// --- columns ---------------------------------------------------------------------------------------

const isBranch = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

export class Columns {
  constructor(tree = { seconds: [] }) {
    this.tree = tree;
  }

  get length() {
    return this.tree.seconds.length;
  }

  append(sample) {
    const count = this.length;
    if (count && sample.seconds <= this.tree.seconds[count - 1]) return;
    const { hints, ...rest } = sample;
    append(this.tree, rest, count);
    this.tree.hints = hints;
    const first = this.tree.seconds.findIndex((at) => at > sample.seconds - KEPT);
    if (first > 0) cut(this.tree, first);
  }

  // The column at a path, undefined where there is none.
  at(...path) {
    let found = this.tree;
    for (const name of path) {
      found = isBranch(found) && Object.hasOwn(found, name) ? found[name] : undefined;
    }
    return found;
  }

  names(...path) {
    const found = this.at(...path);
    return isBranch(found) ? Object.keys(found) : [];
  }

  last(...path) {
    const column = this.at(...path);
    return Array.isArray(column) && column.length ? column[column.length - 1] : null;
  }
}

function put(branch, name, value) {
  // A name may be "__proto__": it is a name like any other.
  Object.defineProperty(branch, name, { value, writable: true, enumerable: true, configurable: true });
}

function append(branch, sample, count) {
  const names = new Set([...Object.keys(branch), ...Object.keys(sample)]);
  names.delete("hints");
  for (const name of names) {
    const value = Object.hasOwn(sample, name) ? sample[name] : null;
    let there = Object.hasOwn(branch, name) ? branch[name] : undefined;
    if (there === undefined) {
      there = isBranch(value) ? {} : new Array(count).fill(null);
      put(branch, name, there);
    }
    if (Array.isArray(there)) there.push(value);
    else append(there, isBranch(value) ? value : {}, count);
  }
}

function cut(branch, first) {
  for (const [name, value] of Object.entries(branch)) {
    if (name === "hints") continue;
    if (Array.isArray(value)) value.splice(0, first);
    else if (isBranch(value)) cut(value, first);
  }
}

// --- numbers; a dash is one that nobody told -------------------------------------------------------

export const DASH = "—";

export function short(value, digits = 3) {
  if (value === null || value === undefined) return DASH;
  if (value === 0) return "0";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}

export function seconds(value) {
  if (value === null || value === undefined) return DASH;
  if (value === 0) return "0 ms";
  if (value < 1e-3) return `${short(value * 1e6)} µs`;
  return value < 1 ? `${short(value * 1e3)} ms` : `${short(value)} s`;
}

export const percent = (value) => (value === null || value === undefined ? DASH : `${Math.round(value * 100)} %`);

export function bytes(value) {
  if (value === null || value === undefined) return DASH;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (value < 1000) return `${short(value)} ${unit}`;
    value /= 1000;
  }
  return `${short(value)} TB`;
}

const two = (value) => String(value).padStart(2, "0");

export function clockTime(at, withSeconds = true) {
  const date = new Date(at * 1000);
  const minute = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return withSeconds ? `${minute}:${two(date.getSeconds())}` : minute;
}

export function age(value) {
  if (value === null) return "never";
  return value < 2 ? "just now" : `${Math.round(value)} s ago`;
}

export function duration(length) {
  return length >= 120 ? `${Math.round(length / 60)} minutes` : `${Math.max(1, Math.round(length))} s`;
}

// --- a chart ---------------------------------------------------------------------------------------

// The busiest lines, and the time between samples that are far apart as a hole in each.
function drawable(lines, times, from) {
  const first = Math.max(0, times.findIndex((at) => at >= from));
  const weight = (line) => line.values.slice(first).reduce((whole, value) => whole + (value ?? 0), 0);
  const chosen = lines.filter((line) => line.values)
    .map((line) => ({ ...line, weight: lines.length > MOST_LINES ? weight(line) : 0 }))
    .sort((one, other) => other.weight - one.weight).slice(0, MOST_LINES);
  const data = [[], ...chosen.map(() => [])];
  for (let at = first; at < times.length; at += 1) {
    if (at > first && times[at] - times[at - 1] > GAP) {
      data[0].push(times[at - 1] + 1);
      chosen.forEach((_, line) => data[line + 1].push(null));
    }
    data[0].push(times[at]);
    chosen.forEach((line, number) => data[number + 1].push(line.values[at] ?? null));
  }
  return { data, lines: chosen };
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  constructor(figure, kind) {
    this.kind = kind;
    this.place = figure.querySelector(".plot");
    this.list = figure.querySelector(".lines");
    this.figure = figure;
    this.lines = [];
    this.plot = null;
    this.place.addEventListener("keydown", (event) => this.move(event));
    this.watch = new ResizeObserver(() => this.fit());
    this.watch.observe(this.place);
  }

  show(columns, model, from, to) {
    const { data, lines } = drawable(this.kind.lines(columns, model), columns.at("seconds"), from);
    this.figure.hidden = !lines.length;
    this.span = [from, to];
    if (this.figure.hidden) return;
    if (this.plot === null || names(lines) !== names(this.lines)) this.build(data, lines);
    else this.plot.setData(data);
    this.tell();
  }

  build(data, lines) {
    this.plot?.destroy();
    this.lines = lines;
    const ink = colour("--soft");
    const axis = { stroke: ink, grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const series = lines.map(({ label, steps, fill }, at) => ({
      label,
      ...(steps && { paths: window.uPlot.paths.stepped({ align: 1 }) }),
      ...(fill && { fill: colour("--wash") }),
      stroke: colour(`--line-${at + 1}`),
      width: 2,
      dash: DASHES[at % DASHES.length],
      points: { show: true, size: 5, fill: colour(`--line-${at + 1}`), filter: alone },
    }));
    this.plot = new window.uPlot({
      ...this.size(),
      series: [{}, ...series],
      scales: {
        x: { range: () => this.span },
        y: { range: (_, low, high) => [0, this.kind.top ?? (high > 0 ? high * 1.1 : 1)] },
      },
      axes: [
        { ...axis, space: 64, values: (_, splits) => splits.map((at) => clockTime(at, splits[1] - splits[0] < 60)) },
        { ...axis, size: 62, values: (_, splits) => splits.map((value) => this.kind.text(value)) },
      ],
      legend: { show: false },
      cursor: { sync: { key: "live" }, drag: { x: false, y: false }, y: false },
      hooks: { setCursor: [() => this.tell()] },
    }, data, this.place);
    this.list.replaceChildren(...lines.map(({ label }, at) => entry(label, at + 1)));
  }

  repaint() {
    if (this.plot !== null) this.build(this.plot.data, this.lines);
    this.tell();
  }

  size() {
    return { width: Math.max(this.place.clientWidth, 120), height: this.place.clientHeight || 180 };
  }

  fit() {
    if (this.plot !== null && this.place.clientWidth) this.plot.setSize(this.size());
  }

  end() {
    this.plot?.destroy();
    this.watch.disconnect();
  }

  // The numbers under the cursor, or the newest.
  tell() {
    if (this.plot === null) return;
    const { data, cursor } = this.plot;
    const at = cursor.idx ?? data[0].length - 1;
    [...this.list.children].forEach((item, number) => {
      write(item.querySelector("b"), this.kind.text(data[number + 1]?.[at]));
    });
  }

  move(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (this.plot === null || (step === undefined && event.key !== "Escape")) return;
    event.preventDefault();
    if (step === undefined) {
      this.plot.setCursor({ left: -10, top: -10 });
      return;
    }
    const times = this.plot.data[0];
    const now = this.plot.cursor.idx ?? times.length - 1;
    const next = Math.min(Math.max(now + step, 0), times.length - 1);
    this.plot.setCursor({ left: this.plot.valToPos(times[next], "x"), top: 0 });
  }
}

// Where the values before and after are missing: no line would show it.
function alone(plot, series) {
  const values = plot.data[series];
  const there = (at) => values[at] !== null && values[at] !== undefined;
  return values.flatMap((_, at) => (there(at) && !there(at - 1) && !there(at + 1) ? [at] : []));
}

const names = (lines) => lines.map(({ label }) => label).join("\n");

function entry(label, number) {
  const item = document.createElement("li");
  const swatch = document.createElement("span");
  swatch.className = "swatch";
  swatch.dataset.line = number;
  const name = document.createElement("span");
  name.textContent = label;
  item.append(swatch, name, document.createElement("b"));
  return item;
}

export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
