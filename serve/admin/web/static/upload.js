// The upload page: what was chosen, how far it is, and what became of it.

import { ofDrop, ofInput, recognise } from "./folders.js";
import { ask, bring, digestOf } from "./uploading.js";

const form = document.querySelector("[data-upload]");
const part = (name) => form.querySelector(`[data-${name}]`);
let chosen = null;
let work = null; // an AbortController while something is on its way

form.hidden = false;
part("folder").addEventListener("change", (event) => choose(() => ofInput(event.target.files)));
part("file").addEventListener("change", (event) => choose(() => ofInput(event.target.files)));
const zone = part("zone");
for (const name of ["dragenter", "dragover"]) {
  zone.addEventListener(name, (event) => { event.preventDefault(); zone.classList.add("over"); });
}
for (const name of ["dragleave", "drop"]) zone.addEventListener(name, () => zone.classList.remove("over"));
zone.addEventListener("drop", (event) => {
  event.preventDefault();
  const given = ofDrop(event.dataTransfer);
  choose(() => given);
});
part("cancel").addEventListener("click", () => work?.abort());
addEventListener("beforeunload", (event) => { if (work) event.preventDefault(); });
form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!work) run();
});

async function choose(read) {
  chosen = null;
  try {
    const given = await read();
    if (!given.length) return;
    chosen = recognise(given);
    if (!form.elements.model.value && /^[A-Za-z0-9]/.test(chosen.name)) form.elements.model.value = chosen.name;
    show(chosen);
    status("");
  } catch (error) {
    part("files").replaceChildren();
    status(error.message, "bad");
  }
  part("send").disabled = !chosen;
}

function show({ kind, files, notes }) {
  const size = files.reduce((sum, one) => sum + one.file.size, 0);
  const head = document.createElement("p");
  const what = kind === "source" ? ", to be converted to ONNX" : "";
  head.textContent = `${files.length} ${files.length === 1 ? "file" : "files"}, ${bytes(size)}${what}.`;
  const list = document.createElement("ul");
  for (const one of files.slice(0, 30)) list.append(item(`${one.path}, ${bytes(one.file.size)}`));
  if (files.length > 30) list.append(item(`and ${files.length - 30} more`));
  for (const note of notes) list.append(item(note));
  part("files").replaceChildren(head, list);
}

async function run() {
  work = new AbortController();
  const { signal } = work;
  const wanted = { labels: form.elements.label.value.trim() ? [form.elements.label.value.trim()] : [], live: form.elements.live.checked };
  const model = form.elements.model.value.trim();
  const pace = meter();
  let id = "", isThere = false;
  busy(true);
  try {
    const { untilConverted, untilReady } = await import("./following.js"); // not before it is needed
    const files = [];
    for (const one of chosen.files) {
      status(`Hashing ${one.path}`);
      files.push({ ...one, sha256: await digestOf(one.file) });
      signal.throwIfAborted();
    }
    const tell = (news) => heard(news, pace);
    const asking = { signal, tell };
    const made = await bring({
      model, kind: chosen.kind, files, ...asking,
      begun: (upload) => { id = upload.id; },
      conclude: (upload) => (chosen.kind === "source"
        ? ask("POST", "/api/conversions", { body: { upload, model, ...wanted }, ...asking })
        : ask("POST", `/api/uploads/${upload}/commit`, { body: { ...wanted, source: "uploaded in a browser" }, ...asking })),
    });
    isThere = true;
    if (chosen.kind === "source") step("converting", "");
    const version = made.version ?? await untilConverted(made.id, asking);
    step(`version ${version}`, "being checked and tried on a temporary Triton server");
    conclude(model, await untilReady(model, version, asking));
  } catch (error) {
    const isCancelled = error.name === "AbortError";
    status(isCancelled ? (isThere ? "This page no longer shows the progress. The gateway continues to publish the version." : "Cancelled.") : error.message, isCancelled ? "warn" : "bad");
    if (isCancelled && id && !isThere) fetch(`/api/uploads/${id}`, { method: "DELETE" }).catch(() => {});
  } finally {
    work = null;
    busy(false);
  }
}

function heard(news, pace) {
  if (news.total !== undefined) {
    part("bar").max = Math.max(news.total, 1);
    part("bar").value = news.total ? news.done : 1;
    part("numbers").textContent = pace(news.done, news.total);
    status("Uploading");
  } else if (news.waiting) {
    status(`Connection lost (${news.why}). Retrying in ${news.waiting.toFixed(0)} s. The upload will resume.`, "warn");
  } else if (news.waiting === 0) {
    status("Retrying");
  } else if (news.state) {
    step(news.state, news.why);
  }
}

// Bytes, rate over the last seconds, and the time that is left at that rate.
function meter() {
  const seen = [];
  return (done, total) => {
    const now = performance.now();
    seen.push([now, done]);
    while (seen.length > 2 && now - seen[0][0] > 5000) seen.shift();
    const [then, before] = seen[0];
    const rate = now > then ? (done - before) / (now - then) * 1000 : 0;
    const text = `${bytes(done)} of ${bytes(total)}`;
    if (done >= total) return `${text}, complete`;
    return rate > 0 ? `${text}, ${bytes(rate)}/s, ${Math.ceil((total - done) / rate)} s left` : text;
  };
}

function step(state, why) {
  status("");
  const line = item(why ? `${state}: ${why}` : state);
  if (part("steps").lastElementChild?.textContent !== line.textContent) part("steps").append(line);
}

function conclude(model, one) {
  const path = `/models/${encodeURIComponent(model)}/versions/${one.version}`;
  const isReady = ["ready", "serving"].includes(one.state);
  status(isReady ? `Version ${one.version} of ${model} is ready.` : one.state === "failed" && one.reason ? `${one.reason[0].toUpperCase()}${one.reason.slice(1)}` : `Version ${one.version} of ${model} has the state “${one.state}”. ${one.reason}`, isReady ? "good" : "bad");
  const row = document.createElement("p");
  row.className = "links";
  row.append(link(path, "View the version"));
  if (isReady) row.append(link(`/try/${encodeURIComponent(model)}?a=${one.version}`, "Try it"), link(`/traffic/${encodeURIComponent(model)}`, "Set the traffic split"));
  part("outcome").replaceChildren(row);
  if (one.findings.length) part("outcome").prepend(table("Findings of the checks", one.findings));
}

function table(title, rows) {
  const made = document.createElement("table");
  made.createCaption().textContent = title;
  const body = made.createTBody();
  for (const text of rows) body.insertRow().insertCell().textContent = text;
  return made;
}

function status(text, kind = "") {
  const place = part("status");
  if (place.textContent === text) return;
  place.className = text && kind ? `verdict ${kind}` : "";
  place.textContent = text;
}

function busy(is) {
  part("progress").hidden = false;
  for (const each of form.querySelectorAll("input, [data-send]")) each.disabled = is || (each === part("send") && !chosen);
  part("cancel").hidden = !is;
  if (is) {
    part("steps").replaceChildren();
    part("outcome").replaceChildren();
    part("bar").value = 0;
    part("numbers").textContent = "";
  }
}

function item(text) {
  const made = document.createElement("li");
  made.textContent = text;
  return made;
}

function link(path, text) {
  const made = document.createElement("a");
  made.href = path;
  made.textContent = text;
  return made;
}

function bytes(count) {
  const units = ["B", "kB", "MB", "GB"];
  const at = count < 1000 ? 0 : Math.min(3, Math.floor(Math.log10(count) / 3));
  return `${at ? (count / 1000 ** at).toPrecision(3) : Math.round(count)} ${units[at]}`;
}
