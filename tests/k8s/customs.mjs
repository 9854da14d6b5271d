// Check custom resources: their fields against the types of their kind, their values against its validator.
//
//     node customs.mjs FOLDER < objects.json > told.json
//
// FOLDER has the packages in node_modules. What is told is a list of texts, one for each object: what is
// wrong with it, or "". The validators know no "unknown field"; TypeScript does, where a literal is
// assigned to a type. So each object becomes such a literal, in one program that nobody writes to disk.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const PACKAGES = {
  "cert-manager.io": "@kubernetes-models/cert-manager",
  "gateway.networking.k8s.io": "@kubernetes-models/gateway-api",
  "keda.sh": "@kubernetes-models/keda",
  "monitoring.coreos.com": "@kubernetes-models/prometheus-operator",
};

const folder = process.argv[2];
const require = createRequire(join(folder, "package.json"));
const ts = require("typescript");
const objects = JSON.parse(readFileSync(0, "utf8"));

const found = await Promise.all(objects.map(problem));
const known = objects.map((each, index) => [each, index]).filter(([, index]) => found[index] === "");
for (const [index, text] of misfits(known)) found[index] ||= text;
process.stdout.write(JSON.stringify(found));

function moduleOf(each) {
  const name = PACKAGES[each.apiVersion.split("/")[0]];
  return name && `${name}/${each.apiVersion}/${each.kind}`;
}

async function problem(each) {
  const name = moduleOf(each);
  if (!name) return `nothing here knows the kind ${each.apiVersion} ${each.kind}`;
  try {
    const { [each.kind]: kind } = await import(pathToFileURL(join(folder, "node_modules", `${name}.js`)));
    new kind(each).validate();
    return "";
  } catch (error) {
    return String(error.message);
  }
}

// Pairs of an index and what TypeScript says about the object.
function misfits(numbered) {
  const file = join(folder, "checked.ts");
  const starts = [];
  let text = "";
  for (const [each, index] of numbered) {
    starts.push([text.length, index]);
    text += `import type { I${each.kind} as T${index} } from ${JSON.stringify(moduleOf(each))};\n`;
    text += `export const o${index}: T${index} = ${JSON.stringify(each, null, 1)};\n`;
  }
  const options = {
    strict: true, noEmit: true, skipLibCheck: true, types: [],
    target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
  };
  const host = ts.createCompilerHost(options);
  const read = host.getSourceFile.bind(host);
  const exists = host.fileExists.bind(host);
  host.fileExists = (name) => name === file || exists(name);
  host.getSourceFile = (name, ...rest) =>
    name === file ? ts.createSourceFile(name, text, rest[0]) : read(name, ...rest);
  const program = ts.createProgram([file], options, host);
  return ts.getPreEmitDiagnostics(program).map((each) => {
    const words = ts.flattenDiagnosticMessageText(each.messageText, " ");
    const before = starts.filter(([start]) => start <= (each.start ?? 0));
    const line = each.file ? text.slice(each.start, each.start + each.length) : "";
    return [(before.at(-1) ?? [0, 0])[1], `${line}: ${words}`];
  });
}
