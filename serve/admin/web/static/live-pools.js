// Hints: how many replicas each pool should have, and why; and how versions could be batched.

import { Chart, age, percent, short, write } from "./live-drawing.js";

const MOST_MODELS = 8; // rows of a pool's table
const NUMBERS = ["demand", "calls", "capacity", "waiting"]; // its columns
const FACTS = {
  desired: short, ready: short, starting: short, demand: short, utilization: percent, age,
};

const kindOf = (pool) => ({
  text: short,
  lines: (columns) => [
    { label: "ready", values: columns.at("pools", pool, "ready"), steps: true, fill: true },
    { label: "demand", values: columns.at("pools", pool, "demand") },
    { label: "desired", values: columns.at("pools", pool, "desired"), steps: true },
  ],
});

function made(name, text, kind = "") {
  const node = document.createElement(name);
  node.textContent = text;
  if (kind) node.className = kind;
  return node;
}

// --- one pool --------------------------------------------------------------------------------------

class Pool {
  constructor(name) {
    this.name = name;
    this.card = document.getElementById("pool").content.firstElementChild.cloneNode(true);
    this.card.dataset.pool = name;
    this.part("name").textContent = `Pool ${name}`;
    this.part("plot").setAttribute("aria-label",
      `Pool ${name}: chart of ready and desired replicas, and of demand. Use the left and right arrow keys to move through time.`);
    this.part("models").closest(".table").setAttribute("aria-label", `Pool ${name}: demand by model`);
    this.chart = new Chart(this.card.querySelector("figure"), kindOf(name));
    this.told = "";
  }

  part(name) {
    return this.card.querySelector(`[data-part="${name}"]`);
  }

  show(columns, hint, from, to) {
    const of = (...path) => columns.last("pools", this.name, ...path);
    for (const [name, text] of Object.entries(FACTS)) write(this.part(name), text(of(name)));
    this.chart.show(columns, "", from, to);
    this.models(columns);
    this.say(hint, of("desired") === of("ready") + of("starting"));
  }

  // Only what differs is written: those who listen to the page need not hear it every second.
  say(hint, isRight) {
    const now = JSON.stringify([hint, isRight]);
    if (now === this.told) return;
    this.told = now;
    const asked = this.part("asked");
    asked.textContent = hint?.what ?? "";
    asked.className = `tag ${isRight ? "good" : "warn"}`;
    this.part("held").hidden = hint?.confidence !== "low";
    this.part("reasons").replaceChildren(...(hint?.reasons ?? []).map(({ code, text }) => {
      const item = made("li", `${text} `);
      item.append(made("span", code, "tag"));
      return item;
    }));
  }

  models(columns) {
    const at = (model, field) => columns.last("pools", this.name, "models", model, field);
    const names = columns.names("pools", this.name, "models")
      .filter((model) => at(model, "calls") !== null)
      .sort((one, other) => (at(other, "demand") ?? 0) - (at(one, "demand") ?? 0));
    const body = this.part("models");
    names.slice(0, MOST_MODELS).forEach((model, number) => {
      const row = body.rows[number] ?? body.appendChild(modelRow());
      [model, ...NUMBERS.map((field) => short(at(model, field)))]
        .forEach((text, place) => write(row.cells[place], text));
    });
    while (body.rows.length > Math.min(names.length, MOST_MODELS)) body.deleteRow(-1);
    body.closest(".table").hidden = !names.length;
    const more = this.part("more");
    more.hidden = names.length <= MOST_MODELS;
    write(more, `and ${names.length - MOST_MODELS} more`);
  }

  end() {
    this.chart.end();
    this.card.remove();
  }
}

function modelRow() {
  const row = document.createElement("tr");
  const head = document.createElement("th");
  head.scope = "row";
  row.append(head);
  for (let number = 0; number < NUMBERS.length; number += 1) row.insertCell().className = "number";
  return row;
}

// --- all of them -----------------------------------------------------------------------------------

export class Pools {
  constructor() {
    this.section = document.getElementById("hints");
    this.place = this.section.querySelector(".live-pools");
    this.list = this.section.querySelector("[data-part=batching]");
    this.pools = new Map();
    this.told = "";
  }

  show(columns, from, to) {
    const hints = columns.at("hints") ?? [];
    const of = (kind) => hints.filter((hint) => hint.kind === kind);
    const scaling = new Map(of("scaling").map((hint) => [hint.about, hint]));
    for (const name of columns.names("pools")) this.update(name, columns, scaling.get(name), from, to);
    this.section.hidden = !this.pools.size && !of("batching").length;
    this.batching(of("batching"));
  }

  update(name, columns, hint, from, to) {
    const isThere = columns.last("pools", name, "desired") !== null;
    if (!isThere) {
      this.pools.get(name)?.end();
      this.pools.delete(name);
      return;
    }
    this.section.hidden = false; // a chart is as wide as its place, which has none while it is hidden
    if (!this.pools.has(name)) {
      this.pools.set(name, new Pool(name));
      this.place.append(this.pools.get(name).card);
    }
    this.pools.get(name).show(columns, hint, from, to);
  }

  batching(hints) {
    const now = JSON.stringify(hints);
    if (now === this.told) return;
    this.told = now;
    this.list.hidden = !hints.length;
    this.list.querySelector("ul").replaceChildren(...hints.map(({ about, reasons, fix }) => {
      const at = about.lastIndexOf("@");
      const link = made("a", about);
      link.href = `/models/${encodeURIComponent(about.slice(0, at))}/versions/${about.slice(at + 1)}/batching`;
      const item = document.createElement("li");
      item.append(link, `: ${reasons.map(({ text }) => text).join("; ")}`);
      if (fix) item.append(". Try ", made("code", fix));
      return item;
    }));
  }

  repaint() {
    for (const pool of this.pools.values()) pool.chart.repaint();
  }
}
