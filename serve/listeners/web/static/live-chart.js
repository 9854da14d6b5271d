// The Live page: a stream of samples, kept as columns, drawn by uPlot and told in words.
//
// The columns are the tree of GET /api/live: at each leaf a list with one value for each of
// `seconds`, null where nobody told the number. A sample is the same tree with one value at each
// leaf, so it is appended leaf by leaf.

const KEPT = 600; // seconds
const GAP = 3; // seconds without a sample that a line must not bridge
const MOST_LINES = 8;
const SUMMARY_EVERY = 10000; // milliseconds
const WAITS = [1, 2, 4, 8, 15]; // seconds before each further attempt to connect
const DASHES = [[], [7, 4], [2, 3]];
const DASH = "—";

const byId = (id) => document.getElementById(id);
const isBranch = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

// --- numbers as people read them -------------------------------------------------------------------

function short(value, digits = 3) {
  if (value === null || value === undefined) return DASH;
  if (value === 0) return "0";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}

function seconds(value) {
  if (value === null || value === undefined) return DASH;
  if (value === 0) return "0 ms";
  if (value < 1e-3) return `${short(value * 1e6)} µs`;
  return value < 1 ? `${short(value * 1e3)} ms` : `${short(value)} s`;
}

const percent = (value) => (value === null || value === undefined ? DASH : `${Math.round(value * 100)} %`);

function bytes(value) {
  if (value === null || value === undefined) return DASH;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (value < 1000) return `${short(value)} ${unit}`;
    value /= 1000;
  }
  return `${short(value)} TB`;
}

const two = (value) => String(value).padStart(2, "0");

function clockTime(at, withSeconds = true) {
  const date = new Date(at * 1000);
  const minute = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return withSeconds ? `${minute}:${two(date.getSeconds())}` : minute;
}

// --- the columns -----------------------------------------------------------------------------------

class Columns {
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

// --- what the charts show --------------------------------------------------------------------------

// Where nothing was counted although the gateway told its numbers, there were none: 0.
function counted(columns, column) {
  const told = columns.at("gateway", "calls") ?? [];
  return told.map((calls, at) => column?.[at] ?? (calls === null ? null : 0));
}

function sum(parts, length) {
  return Array.from({ length }, (_, at) => {
    const told = parts.map((part) => part[at]).filter((value) => value !== null && value !== undefined);
    return told.length ? told.reduce((whole, value) => whole + value, 0) : null;
  });
}

const rates = (model) => (model ? ["models", model] : ["gateway"]);
const work = (replica, model) => (model ? ["replicas", replica, "models", model] : ["replicas", replica]);

function callLines(columns, model) {
  if (!model) {
    return columns.names("models").map((name) => ({
      label: name || "no known model", values: counted(columns, columns.at("models", name, "calls")),
    }));
  }
  return columns.names("models", model, "versions").map((version) => {
    const parts = columns.names("models", model, "versions", version)
      .map((protocol) => columns.at("models", model, "versions", version, protocol, "calls"));
    return {
      label: version ? `version ${version}` : "no known version",
      values: counted(columns, sum(parts, columns.length)),
    };
  });
}

const CHARTS = {
  calls: { text: short, lines: callLines },
  latency: {
    text: seconds,
    lines: (columns, model) => ["p50", "p90", "p99"].map((name) => ({
      label: name, values: columns.at(...rates(model), name),
    })),
  },
  errors: {
    text: short,
    lines: (columns, model) => {
      const codes = columns.names(...rates(model), "codes");
      if (!codes.length) return [{ label: "none", values: counted(columns, undefined) }];
      return codes.map((code) => ({
        label: code, values: counted(columns, columns.at(...rates(model), "codes", code)),
      }));
    },
  },
  queue: { text: seconds, lines: (columns, model) => perReplica(columns, model, "queue") },
  batch: { text: short, lines: (columns, model) => perReplica(columns, model, "batch") },
  gpu: {
    text: percent,
    top: 1,
    lines: (columns) => columns.names("replicas").flatMap((replica) =>
      columns.names("replicas", replica, "gpus").map((gpu, at, all) => ({
        label: all.length > 1 ? `${replica} ${gpu.slice(0, 12)}` : replica,
        values: columns.at("replicas", replica, "gpus", gpu, "utilization"),
      }))),
  },
};

function perReplica(columns, model, name) {
  return columns.names("replicas").map((replica) => ({
    label: replica, values: columns.at(...work(replica, model), name),
  }));
}

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
  return { data, labels: chosen.map((line) => line.label) };
}

// --- one chart -------------------------------------------------------------------------------------

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Chart {
  constructor(figure) {
    this.kind = CHARTS[figure.dataset.chart];
    this.place = figure.querySelector(".plot");
    this.list = figure.querySelector(".lines");
    this.figure = figure;
    this.labels = [];
    this.plot = null;
    this.place.addEventListener("keydown", (event) => this.move(event));
    new ResizeObserver(() => this.fit()).observe(this.place);
  }

  show(columns, model, from, to) {
    const { data, labels } = drawable(this.kind.lines(columns, model), columns.at("seconds"), from);
    this.figure.hidden = !labels.length;
    this.span = [from, to];
    if (this.figure.hidden) return;
    if (this.plot === null || labels.join("\n") !== this.labels.join("\n")) this.build(data, labels);
    else this.plot.setData(data);
    this.tell();
  }

  build(data, labels) {
    this.plot?.destroy();
    this.labels = labels;
    const ink = colour("--soft");
    const axis = { stroke: ink, grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const series = labels.map((label, at) => ({
      label,
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
        { ...axis, space: 64, values: (_, splits) => splits.map((at) => clockTime(at, this.span[1] - this.span[0] < 150)) },
        { ...axis, size: 62, values: (_, splits) => splits.map((value) => this.kind.text(value)) },
      ],
      legend: { show: false },
      cursor: { sync: { key: "live" }, drag: { x: false, y: false }, y: false },
      hooks: { setCursor: [() => this.tell()] },
    }, data, this.place);
    this.list.replaceChildren(...labels.map((label, at) => line(label, at + 1)));
  }

  repaint() {
    if (this.plot !== null) this.build(this.plot.data, this.labels);
    this.tell();
  }

  size() {
    return { width: Math.max(this.place.clientWidth, 120), height: this.place.clientHeight || 180 };
  }

  fit() {
    if (this.plot !== null && this.place.clientWidth) this.plot.setSize(this.size());
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

function line(label, number) {
  const item = document.createElement("li");
  const swatch = document.createElement("span");
  swatch.className = "swatch";
  swatch.dataset.line = number;
  const name = document.createElement("span");
  name.textContent = label;
  item.append(swatch, name, document.createElement("b"));
  return item;
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// --- words beside the charts -----------------------------------------------------------------------

const TILES = {
  calls: short, errors: short, retries: short, p50: seconds, p99: seconds,
  in_flight: short, waiting: short, memory: bytes,
  cpu: (value) => (value === null ? DASH : `${short(value, 2)} cores`),
};
const OF_MODEL = new Set(["calls", "errors", "retries", "p50", "p99"]);

function showTiles(columns, model) {
  for (const [name, text] of Object.entries(TILES)) {
    const path = model && OF_MODEL.has(name) ? ["models", model] : ["gateway"];
    write(document.querySelector(`[data-tile="${name}"]`), text(columns.last(...path, name)));
  }
}

function gpuText(gpus) {
  const texts = Object.values(gpus).map((gpu) => [
    percent(gpu.utilization),
    gpu.memory_used !== null && `${bytes(gpu.memory_used)} of ${bytes(gpu.memory_total)}`,
    gpu.power !== null && `${Math.round(gpu.power)} W`,
  ].filter(Boolean).join(", "));
  return texts.join("; ") || DASH;
}

function replicaCells(columns, name, model) {
  const of = (...path) => columns.last("replicas", name, ...path);
  const at = (field) => columns.last(...work(name, model), field);
  const gpus = Object.fromEntries(columns.names("replicas", name, "gpus").map((gpu) => [gpu,
    Object.fromEntries(["utilization", "memory_used", "memory_total", "power"].map((field) => [field, of("gpus", gpu, field)]))])
    .filter(([, gpu]) => Object.values(gpu).some((value) => value !== null)));
  const state = of("state") ?? "gone";
  return [
    of("avoided") ? `${state}, avoided by ${of("avoided")} workers` : state,
    short(of("in_flight")), short(at("waiting")), short(at("requests")),
    seconds(at("queue")), seconds(at("compute")), short(at("batch")), percent(of("cpu")),
    gpuText(gpus), age(of("age")),
  ];
}

function age(value) {
  if (value === null) return "never";
  return value < 2 ? "just now" : `${Math.round(value)} s ago`;
}

// Rows stay where they are, and only texts that differ are written.
function showReplicas(columns, model) {
  const body = document.querySelector("#replicas tbody");
  const rows = new Map([...body.rows].map((row) => [row.dataset.name, row]));
  for (const name of columns.names("replicas")) {
    const cells = replicaCells(columns, name, model);
    const row = rows.get(name) ?? body.appendChild(replicaRow(name, columns.last("replicas", name, "pool"), cells.length));
    cells.forEach((text, number) => write(row.cells[number + 1], text));
  }
}

function replicaRow(name, pool, count) {
  const row = document.createElement("tr");
  row.dataset.name = name;
  const head = document.createElement("th");
  head.scope = "row";
  head.textContent = pool && pool !== "default" ? `${name} (${pool})` : name;
  row.append(head);
  for (let number = 0; number < count; number += 1) {
    const cell = row.insertCell();
    if (number === count - 2) cell.className = "wrap";
    else if (number > 0) cell.className = "number";
  }
  return row;
}

function showHints(columns) {
  const hints = columns.at("hints") ?? [];
  byId("hints").hidden = !hints.length;
  byId("hints").querySelector("ul").replaceChildren(...hints.map((hint) => {
    const item = document.createElement("li");
    item.textContent = [hint.what, hint.why].filter(Boolean).join(": ");
    return item;
  }));
}

function summary(columns, model) {
  const of = (name) => columns.last(...rates(model), name);
  const calls = of("calls");
  if (calls === null && columns.length < 3) return ""; // rates need two readings
  if (calls === null) return model ? `Nothing is known of ${model} yet.` : "The gateway tells no numbers.";
  const errors = of("errors") ? `${short(of("errors"))} errors/s` : "no errors";
  const states = columns.names("replicas").map((name) => columns.last("replicas", name, "state")).filter(Boolean);
  const up = states.filter((state) => state === "up").length;
  const p99 = of("p99") === null ? "" : `, p99 ${seconds(of("p99"))}`;
  return `${short(calls)} calls/s${p99}, ${errors}; ${up} of ${states.length} replicas up.`;
}

function duration(length) {
  return length >= 120 ? `${Math.round(length / 60)} minutes` : `${Math.max(1, Math.round(length))} s`;
}

// --- the page --------------------------------------------------------------------------------------

class Page {
  constructor() {
    this.columns = new Columns();
    this.charts = [...document.querySelectorAll("[data-chart]")].map((figure) => new Chart(figure));
    this.frozen = null; // the columns while it is paused
    this.told = 0;
    this.failures = 0;
    byId("pause").addEventListener("click", () => this.pause());
    byId("picks").addEventListener("change", () => this.pick());
    byId("picks").addEventListener("submit", (event) => event.preventDefault());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.charts.forEach((chart) => chart.repaint());
    });
    addEventListener("online", () => this.connect());
    addEventListener("pagehide", () => this.source?.close());
    addEventListener("pageshow", (event) => event.persisted && this.connect());
    this.connect();
  }

  get model() {
    return byId("model").value;
  }

  // --- the stream ---

  connect() {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = new EventSource("/api/live/events?history=true");
    this.source.addEventListener("history", (event) => {
      this.failures = 0;
      this.columns = new Columns(JSON.parse(event.data));
      this.connected();
      this.show();
    });
    this.source.addEventListener("message", (event) => {
      this.columns.append(JSON.parse(event.data));
      if (this.frozen === null) this.show();
    });
    this.source.addEventListener("error", () => this.lost());
  }

  connected() {
    if (this.frozen === null) this.say("Live", "good");
    else this.say(`Paused at ${clockTime(this.frozen.last("seconds") ?? Date.now() / 1000)}`, "warn");
  }

  lost() {
    this.source.close();
    const wait = WAITS[Math.min(this.failures, WAITS.length - 1)];
    this.failures += 1;
    this.say(`Not connected, trying again in ${wait} s`, "bad");
    this.retry = setTimeout(() => this.connect(), (wait + Math.random() * 0.5) * 1000);
    if (this.failures === 2) this.explain();
  }

  // An EventSource does not tell why it was refused; the same data does.
  async explain() {
    try {
      const answer = await fetch("/api/live", { headers: { accept: "application/json" } });
      if (answer.status === 401) location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
    } catch {
      // it is not there; the next attempt tells when it is
    }
  }

  say(text, kind) {
    const tag = byId("connection");
    write(tag, text);
    tag.className = `tag ${kind}`;
  }

  // --- what people do ---

  pause() {
    this.frozen = this.frozen === null ? new Columns(structuredClone(this.columns.tree)) : null;
    byId("pause").setAttribute("aria-pressed", String(this.frozen !== null));
    if (this.failures === 0) this.connected();
    this.show();
  }

  pick() {
    const search = new URLSearchParams(new FormData(byId("picks")));
    if (!this.model) search.delete("model");
    history.replaceState(null, "", `?${search}`);
    this.told = 0;
    this.show();
  }

  // --- what is seen ---

  show() {
    const columns = this.frozen ?? this.columns;
    const { model } = this;
    if (!columns.length) return;
    const times = columns.at("seconds");
    const to = times[times.length - 1];
    const from = Math.max(to - 60 * Number(byId("minutes").value), Math.min(times[0], to - 60));
    this.offer();
    const isQuiet = !(columns.at("gateway", "calls") ?? []).some((calls) => calls > 0);
    byId("empty").hidden = !isQuiet;
    byId("charts").hidden = isQuiet;
    write(byId("quiet"), `No calls in the last ${duration(to - times[0])}.`);
    if (!isQuiet) this.charts.forEach((chart) => chart.show(columns, model, from, to));
    showTiles(columns, model);
    showReplicas(columns, model);
    showHints(columns);
    if (Date.now() - this.told >= SUMMARY_EVERY) {
      const text = summary(columns, model);
      if (text) this.told = Date.now();
      write(byId("summary"), text);
    }
  }

  offer() {
    const select = byId("model");
    const known = new Set([...select.options].map((option) => option.value));
    for (const name of this.columns.names("models")) {
      if (name && !known.has(name)) select.add(new Option(name, name));
    }
  }
}

new Page();
