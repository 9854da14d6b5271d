// What people drop or choose, as the files of one upload: a model folder of Triton, one ONNX file,
// or something that has to be converted. Nothing here talks to the gateway.

const KERAS = /\.(keras|h5|hdf5)$/i;
const ONNX = /\.onnx$/i;
const LEFT_OUT = /(^|\/)(\.[^/]*|__pycache__)(\/|$)/;
const NUMBER = /^[1-9][0-9]{0,17}$/;

// The files of a chosen folder, or some chosen files.
export function ofInput(list) {
  return [...list].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
}

// The files of what was dropped, folders included. The entries must be taken at once.
export async function ofDrop(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return ofInput(transfer.files);
  const found = [];
  for (const entry of entries) await walk(entry, found);
  return found;
}

async function walk(entry, found) {
  if (entry.isFile) {
    const file = await new Promise((done, fail) => entry.file(done, fail));
    found.push({ path: entry.fullPath.slice(1), file });
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const some = await new Promise((done, fail) => reader.readEntries(done, fail));
    if (!some.length) return;
    for (const each of some) await walk(each, found);
  }
}

// What it is: `kind` version or source, a name to propose, the files with their paths in the
// upload, and notes. An Error says what to do instead.
export function recognise(given) {
  const { name, files } = withoutTop(given);
  const kept = files.filter((one) => !LEFT_OUT.test(one.path));
  const notes = kept.length < files.length ? [`Hidden files not uploaded: ${files.length - kept.length}`] : [];
  if (!kept.length) throw new Error("There are no files to upload.");
  const paths = kept.map((one) => one.path);
  if (paths.includes("MLmodel")) {
    throw new Error("This is an MLflow folder. Push it from the command line: servegate model push FOLDER NAME");
  }
  if (paths.includes("saved_model.pb")) return { kind: "source", name, files: kept, notes };
  if (kept.length === 1 && KERAS.test(paths[0])) {
    return { kind: "source", name: stem(paths[0]), files: kept, notes };
  }
  const numbers = [...new Set(paths.filter((path) => path.includes("/")).map((path) => path.split("/")[0]))]
    .filter((part) => NUMBER.test(part)).sort((a, b) => a - b);
  if (numbers.length) return ofTriton(name, kept, numbers, notes);
  const models = paths.filter((path) => ONNX.test(path));
  if (models.length === 1 && !paths.some((path) => path.includes("/"))) {
    const renamed = kept.map((one) => ({ ...one, path: `1/${ONNX.test(one.path) ? "model.onnx" : one.path}` }));
    return { kind: "version", name: name || stem(models[0]), files: renamed, notes: [...notes, "config.pbtxt will be generated from the model's inputs and outputs."] };
  }
  throw new Error("This is not a model folder. A model folder contains config.pbtxt and a numbered folder, for example 1/model.onnx. You can also upload an .onnx file, a SavedModel folder or a .keras file.");
}

function ofTriton(name, files, numbers, notes) {
  const chosen = numbers.at(-1);
  const others = numbers.slice(0, -1);
  const kept = files.filter((one) => !others.includes(one.path.split("/")[0]) || !one.path.includes("/"));
  if (others.length) notes.push(`Using version folder ${chosen}. Not uploaded: version folder${others.length > 1 ? "s" : ""} ${others.join(", ")}.`);
  return { kind: "version", name, files: kept, notes };
}

// Without the folder that all files are in.
function withoutTop(given) {
  const top = given[0]?.path.split("/")[0] ?? "";
  if (!given.length || !given.every((one) => one.path.startsWith(`${top}/`)) || NUMBER.test(top)) {
    return { name: "", files: given };
  }
  return { name: top, files: given.map((one) => ({ ...one, path: one.path.slice(top.length + 1) })) };
}

function stem(path) {
  return path.split("/").at(-1).replace(/\.[^.]*$/, "");
}
