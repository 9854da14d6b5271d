// A grid of numbers for an input: arrow keys move, cells of a spreadsheet can be pasted.
// A hidden field holds the nested lists as JSON, with every number as it was typed.

const MOST = 1024; // cells
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;

function begin(place) {
  const wanted = place.dataset.shape.split(",").map(Number);
  const { key, datatype, name, rows } = place.dataset;
  const lengths = document.createElement("div");
  lengths.className = "row";
  const cells = document.createElement("div");
  cells.className = "cells";
  cells.tabIndex = 0;
  cells.setAttribute("role", "region");
  cells.setAttribute("aria-label", `Values of ${name}`);
  const field = Object.assign(document.createElement("input"), { type: "hidden", name: `grid-${key}` });
  const hint = document.createElement("p");
  hint.className = "hint";
  hint.textContent = "Use the arrow keys to move between cells. You can paste cells from a spreadsheet.";
  place.replaceChildren(lengths, cells, field, hint);

  const free = wanted.map((length, axis) => [length, axis]).filter(([length]) => length < 0);
  for (const [, axis] of free) {
    const label = document.createElement("label");
    const isRows = rows !== undefined && axis === 0;
    const others = free.length - (rows === undefined ? 0 : 1);
    label.textContent = isRows ? "Rows " : others > 1 ? `Size of dimension ${axis + 1} ` : "Number of values ";
    const box = Object.assign(document.createElement("input"), { type: "number", min: 1, max: MOST, value: isRows ? 1 : 3 });
    box.addEventListener("change", build);
    box.dataset.axis = axis;
    label.append(box);
    lengths.append(label);
  }

  let columns = 1;

  function shape() {
    return wanted.map((length, axis) => {
      if (length >= 0) return length;
      const value = Number(lengths.querySelector(`[data-axis="${axis}"]`).value);
      return Math.max(1, Math.min(MOST, Math.floor(value) || 1));
    });
  }

  function build() {
    const old = values();
    const sizes = shape();
    const count = sizes.reduce((product, size) => product * size, 1);
    if (count > MOST) {
      cells.textContent = `This shape has ${count} values, but the grid holds at most ${MOST}. Use JSON, CSV or NPY instead.`;
      field.value = "";
      return;
    }
    const inner = rows === undefined ? sizes : sizes.slice(1);
    columns = inner.filter((size) => size > 1).at(-1) ?? 1;
    const table = document.createElement("table");
    const body = table.createTBody();
    for (let start = 0; start < count; start += columns) {
      const row = body.insertRow();
      for (let column = 0; column < columns; column += 1) {
        const box = document.createElement("input");
        box.inputMode = "decimal";
        box.value = old[start + column] ?? "0";
        box.autocomplete = "off";
        box.setAttribute("aria-label", `${name}, row ${start / columns + 1}, column ${column + 1}`);
        row.insertCell().append(box);
      }
    }
    cells.replaceChildren(table);
    write();
  }

  function boxes() {
    return [...cells.querySelectorAll("input")];
  }

  function values() {
    return boxes().map((box) => box.value.trim());
  }

  function write() {
    for (const box of boxes()) {
      box.toggleAttribute("aria-invalid", false);
      if (word(box.value.trim()) === null) box.setAttribute("aria-invalid", "true");
    }
    const words = values().map(word);
    field.value = words.includes(null) ? "a cell is not a number" : nested(words, shape());
  }

  function word(text) {
    if (datatype === "BOOL") {
      return { 0: "false", 1: "true", false: "false", true: "true" }[text.toLowerCase()] ?? null;
    }
    if (!NUMBER.test(text)) return null;
    return text.replace(/^\+/, "").replace(/^(-?)0+(?=\d)/, "$1").replace(/^(-?)\./, "$10.").replace(/\.(?!\d)/, "");
  }

  function nested(words, sizes) {
    let parts = words;
    for (const size of [...sizes].reverse()) {
      const groups = [];
      for (let i = 0; i < parts.length; i += size) groups.push(`[${parts.slice(i, i + size).join(",")}]`);
      parts = groups;
    }
    return parts[0] ?? "[]";
  }

  cells.addEventListener("input", write);

  cells.addEventListener("keydown", (event) => {
    const all = boxes();
    const here = all.indexOf(event.target);
    if (here < 0 || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const box = event.target;
    const isAll = box.selectionStart === 0 && box.selectionEnd === box.value.length;
    const steps = { ArrowUp: -columns, ArrowDown: columns };
    if (isAll || box.selectionEnd === 0) steps.ArrowLeft = -1;
    if (isAll || box.selectionStart === box.value.length) steps.ArrowRight = 1;
    const next = all[here + (steps[event.key] ?? NaN)];
    if (!next) return;
    event.preventDefault();
    next.focus();
    next.select();
  });

  cells.addEventListener("focusin", (event) => event.target.select?.());

  cells.addEventListener("paste", (event) => {
    const lines = event.clipboardData.getData("text").replace(/\r/g, "").replace(/\n+$/, "").split("\n");
    const rows = lines.map((line) => line.split(/\t|[,;]\s*|\s+/).filter((each) => each !== ""));
    if (rows.length === 1 && rows[0].length === 1) return;
    event.preventDefault();
    const all = boxes();
    const here = Math.max(all.indexOf(event.target), 0);
    rows.forEach((row, down) => row.forEach((value, right) => {
      const box = all[here + down * columns + right];
      if (box && (here % columns) + right < columns) box.value = value;
    }));
    write();
  });

  build();
}

function beginAll() {
  for (const place of document.querySelectorAll("[data-grid]:not([data-begun])")) {
    place.dataset.begun = "";
    begin(place);
  }
}

document.addEventListener("htmx:afterSwap", beginAll);
beginAll();
