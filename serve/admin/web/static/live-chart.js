// The Live page: a stream of samples, drawn and told in words.

import {
  Chart, Columns, DASH, age, bytes, clockTime, duration, percent, seconds, short, write,
} from "./live-drawing.js";
import { Pools } from "./live-pools.js";

const SUMMARY_EVERY = 3000; // milliseconds
const WAITS = [1, 2, 4, 8, 15]; // seconds before each further attempt to connect

const byId = (id) => document.getElementById(id);

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
      label: name || "unknown model", values: counted(columns, columns.at("models", name, "calls")),
    }));
  }
  return columns.names("models", model, "versions").map((version) => {
    const parts = columns.names("models", model, "versions", version)
      .map((protocol) => columns.at("models", model, "versions", version, protocol, "calls"));
    return {
      label: version ? `version ${version}` : "unknown version",
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

// --- words beside the charts -----------------------------------------------------------------------

const TILES = {
  calls: short, errors: short, retries: short, mirrored: short, p50: seconds, p99: seconds,
  in_flight: short, waiting: short, memory: bytes,
  cpu: (value) => (value === null ? DASH : `${short(value, 2)} cores`),
};
const OF_MODEL = new Set(["calls", "errors", "retries", "mirrored", "p50", "p99"]);

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
  const states = [of("state") ?? "gone"];
  if (of("missing")) states.push(`${of("missing")} ${of("missing") === 1 ? "version" : "versions"} to load`);
  if (of("avoided")) states.push(`ejected by ${of("avoided")} ${of("avoided") === 1 ? "worker" : "workers"}`);
  return [
    states.join(", "),
    short(of("in_flight")), short(at("waiting")), short(at("requests")),
    seconds(at("queue")), seconds(at("compute")), short(at("batch")), percent(of("cpu")),
    gpuText(gpus), age(of("age")),
  ];
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

function summary(columns, model) {
  const of = (name) => columns.last(...rates(model), name);
  const calls = of("calls");
  if (calls === null && columns.length < 3) return ""; // rates need two readings
  if (calls === null) return model ? `No data for ${model} yet.` : "The gateway does not report metrics.";
  const errors = of("errors") ? `${short(of("errors"))} errors/s` : "no errors";
  const replicas = columns.names("replicas").filter((name) => columns.last("replicas", name, "state"));
  const up = replicas.filter((name) => columns.last("replicas", name, "state") === "up");
  const loading = up.filter((name) => columns.last("replicas", name, "missing")).length;
  const ready = `${up.length - loading} of ${replicas.length} replicas ready${loading ? `, ${loading} loading` : ""}`;
  const p99 = of("p99") === null ? "" : `, p99 ${seconds(of("p99"))}`;
  return `${short(calls)} calls/s${p99}, ${errors}; ${ready}.`;
}

// --- the page --------------------------------------------------------------------------------------

class Page {
  constructor() {
    this.columns = new Columns();
    this.charts = [...document.querySelectorAll("[data-chart]")]
      .map((figure) => new Chart(figure, CHARTS[figure.dataset.chart]));
    this.pools = new Pools();
    this.frozen = null; // the columns while it is paused
    this.told = 0;
    this.failures = 0;
    byId("pause").addEventListener("click", () => this.pause());
    byId("picks").addEventListener("change", () => this.pick());
    byId("picks").addEventListener("submit", (event) => event.preventDefault());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.charts.forEach((chart) => chart.repaint());
      this.pools.repaint();
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
    this.say(`Disconnected, retrying in ${wait} s`, "bad");
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
    this.pools.show(columns, from, to);
    showReplicas(columns, model);
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
