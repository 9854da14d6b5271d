// Uploading a dataset: one file, or a folder of pictures, with the bytes that were sent.

import { ofDrop, ofInput } from "./folders.js";

const LEFT_OUT = /(^|\/)(\.[^/]*|__MACOSX|Thumbs\.db)(\/|$)/;
const form = document.querySelector("[data-upload]");
const part = (name) => form.querySelector(`[data-${name}]`);
const bar = form.querySelector("progress");
const [chosen, said, stop, drop] = ["chosen", "said", "stop", "drop"].map(part);
const send = form.querySelector("button.main");
let files = [];
let request = null;

function take(found) {
  files = found.filter((one) => !LEFT_OUT.test(one.path));
  const size = files.reduce((sum, one) => sum + one.file.size, 0);
  const what = files.length === 1 ? files[0].path : `${files.length.toLocaleString("en")} files`;
  chosen.textContent = files.length ? `${what}, ${sized(size)}` : "No files selected.";
  const name = form.elements.name;
  if (files.length && !name.value) {
    name.value = files[0].path.split("/")[0].replace(/\.[^.]*$/, "").replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[._-]+/, "");
  }
  said.replaceChildren();
}

form.addEventListener("change", (event) => {
  if (!event.target.matches("[data-files]")) return;
  for (const other of form.querySelectorAll("[data-files]")) if (other !== event.target) other.value = "";
  take(ofInput(event.target.files));
});

document.addEventListener("dragover", (event) => {
  if (!event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  drop.classList.add("over");
});

document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.classList.remove("over"); });

document.addEventListener("drop", async (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  take(await ofDrop(event.dataTransfer));
});

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (request) return;
  if (!files.length) {
    tell("No files selected", "Select a folder of pictures or one file first.");
    return;
  }
  const body = new FormData();
  for (const name of ["name", "label", "slices"]) body.append(name, form.elements[name].value.trim());
  for (const one of files) body.append("files", one.file, one.path);
  begin(body);
});

stop.addEventListener("click", () => request?.abort());

function begin(body) {
  request = new XMLHttpRequest();
  busy(true);
  said.replaceChildren();
  request.upload.addEventListener("progress", (event) => {
    bar.max = event.total || 1;
    bar.value = event.loaded;
    chosen.textContent = event.loaded < event.total
      ? `${sized(event.loaded)} of ${sized(event.total)} sent` : "Upload complete. Checking the rows…";
  });
  request.addEventListener("load", () => done(request.status, request.responseText));
  request.addEventListener("error", () => tell("Upload failed", "Nothing was saved. Check that Servegate is running, then try again."));
  request.addEventListener("abort", () => tell("Cancelled", "Nothing was saved."));
  request.addEventListener("loadend", () => { request = null; busy(false); });
  request.open("POST", form.dataset.upload);
  request.send(body);
}

function done(status, text) {
  let answer = {};
  try {
    answer = JSON.parse(text);
  } catch { /* no answer of ours: the status says it */ }
  if (status !== 201) {
    chosen.textContent = "";
    tell(answer.what ?? `Servegate returned status ${status}`, [answer.why, answer.try_this && `Try: ${answer.try_this}`].filter(Boolean).join(". "));
    return;
  }
  if (answer.notes.length) {
    tell(`Saved ${answer.rows.toLocaleString("en")} rows`, answer.notes.join(". "), `/datasets/${encodeURIComponent(answer.name)}`);
  } else {
    location.assign(`/datasets/${encodeURIComponent(answer.name)}`);
  }
}

function tell(what, why, path = "") {
  const box = document.createElement("div");
  box.className = path ? "verdict warn" : "verdict bad";
  const strong = document.createElement("strong");
  strong.textContent = what;
  const more = document.createElement("p");
  more.textContent = why;
  box.append(strong, more);
  if (path) {
    const link = document.createElement("a");
    link.href = path;
    link.textContent = "View the dataset";
    box.append(link);
  }
  said.replaceChildren(box);
}

function busy(is) {
  send.disabled = is;
  stop.hidden = bar.hidden = !is;
}

function sized(bytes) {
  const units = ["B", "kB", "MB", "GB"];
  let size = bytes, place = 0;
  while (size >= 1000 && place < 3) { size /= 1000; place += 1; }
  return `${place ? size.toPrecision(3) : size} ${units[place]}`;
}
