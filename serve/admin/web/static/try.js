// Trying: which fields count, pictures that are dropped or pasted, and text files that are opened.

const LARGEST_TEXT = 4e6; // bytes of a file that fills a text area

// --- tabs: the hidden field says which of them counts -----------------------------------------------

document.addEventListener("tabs:chosen", (event) => {
  const list = event.target.closest("[role=tablist]");
  const into = list.dataset.into && document.getElementById(list.dataset.into);
  if (!into) return;
  into.value = event.target.dataset.form;
  if (list.dataset.into === "form-all") {
    document.querySelector("[data-each]").hidden = into.value !== "each";
  }
  sleepHidden();
  fetchModules();
});

// What only some tabs need is fetched when one of them is open.
function fetchModules() {
  for (const place of document.querySelectorAll("[data-module]")) {
    if (place.closest("[hidden]")) continue;
    import(place.dataset.module);
    place.removeAttribute("data-module");
  }
}

// Fields that nobody sees are not sent: a large file of another tab would only be in the way.
function sleepHidden() {
  for (const panel of document.querySelectorAll("#fields [role=tabpanel]")) {
    const asleep = panel.hidden || panel.closest("[hidden]") !== null;
    for (const field of panel.querySelectorAll("input[name], textarea[name]")) field.disabled = asleep;
  }
}

// --- files: into a field, by choice, drop or paste --------------------------------------------------

document.addEventListener("change", async (event) => {
  const fills = event.target.dataset.fills;
  if (fills && event.target.files[0]) {
    const file = event.target.files[0];
    event.target.value = "";
    const area = document.getElementById(fills);
    area.value = file.size > LARGEST_TEXT ? "" : await file.text();
    if (!area.value) area.placeholder = `${file.name} is too large for this field. Use an NPY or NPZ file instead.`;
  }
  if (event.target.type === "file") preview(event.target);
});

document.addEventListener("dragover", (event) => {
  const place = event.target.closest?.("[data-drop]");
  for (const one of document.querySelectorAll(".drop.over")) one.classList.remove("over");
  if (place) place.classList.add("over");
  if (place || event.dataTransfer.types.includes("Files")) event.preventDefault(); // else the page is left
});

document.addEventListener("drop", (event) => {
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  for (const one of document.querySelectorAll(".drop.over")) one.classList.remove("over");
  const field = event.target.closest?.("[data-drop]")?.querySelector("input[type=file]");
  if (field) take(field, event.dataTransfer.files[0]);
});

document.addEventListener("paste", (event) => {
  const picture = [...event.clipboardData.files].find((file) => file.type.startsWith("image/"));
  const tab = picture && document.querySelector("#fields [role=tab][data-form=image]");
  if (!tab) return;
  event.preventDefault();
  tab.click();
  const panel = document.getElementById(tab.getAttribute("aria-controls"));
  take(panel.querySelector("input[type=file]"), picture);
});

function take(field, file) {
  const box = new DataTransfer();
  box.items.add(file);
  field.files = box.files;
  preview(field);
}

function preview(field) {
  const image = field.closest("[data-drop]")?.querySelector("[data-preview]");
  if (!image) return;
  if (image.src) URL.revokeObjectURL(image.src);
  image.hidden = !field.files.length;
  if (field.files.length) image.src = URL.createObjectURL(field.files[0]);
}

// --- results ----------------------------------------------------------------------------------------

document.addEventListener("htmx:afterSwap", (event) => {
  sleepHidden();
  fetchModules();
  if (event.target.id === "result") {
    const said = event.target.querySelector(".verdict") ?? event.target.querySelector("h2");
    document.getElementById("told").textContent = `Run finished. ${said.textContent.trim()}`;
    event.target.scrollIntoView({ block: "start" });
  }
});

sleepHidden();
fetchModules();
