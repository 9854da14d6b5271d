// The browser's half of an upload: digests, what is missing, pieces from the offset that the gateway
// tells. A cut connection is no end: it is tried again, later each time, and goes on where it was.

export const LARGEST = 2 ** 30; // bytes of a file: a browser digests it in one piece
const PIECE = 4 << 20; // bytes
const LONGEST = 15_000; // milliseconds between two tries
const STALLED = 120_000; // milliseconds after which nobody is going to answer a request
const ROUNDS = 4; // how often an upload is begun
const AGAIN = new Set([408, 425, 429, 500, 502, 503, 504]);

// An answer that says no. `status` is 0 for what is wrong on this side.
export class Refused extends Error {
  constructor(status, what, why = "", tryThis = "") {
    super([[what, why].filter(Boolean).join(": "), tryThis && `Try: ${tryThis}`].filter(Boolean).join(". "));
    this.status = status;
  }
}

export async function digestOf(file) {
  if (!globalThis.crypto?.subtle) {
    throw new Refused(0, "This browser cannot hash files on this page", "hashing works only over HTTPS or on localhost");
  }
  if (file.size > LARGEST) {
    throw new Refused(0, `${file.name} is too large for a browser`, "the limit is 1 GiB per file", "servegate model push, which has no limit");
  }
  const bytes = await crypto.subtle.digest("SHA-256", await read(file));
  return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function read(blob) {
  try {
    return await blob.arrayBuffer();
  } catch (error) {
    throw new Refused(0, "A file can no longer be read", String(error), "select it again");
  }
}

// Bring files ({path, file, sha256}) to the gateway, and have `conclude(id)` make something of them.
// `tell` gets {done, total} in bytes, and {waiting, why} in seconds while nobody answers.
export async function bring({ model, kind, files, signal, tell, begun, conclude }) {
  const blobs = new Map(files.map((one) => [one.sha256, one.file]));
  const total = [...blobs.values()].reduce((sum, file) => sum + file.size, 0);
  const body = { model, kind, files: files.map((one) => ({ path: one.path, size: one.file.size, sha256: one.sha256 })) };
  for (let round = 1; ; round += 1) {
    try {
      const upload = await ask("POST", "/api/uploads", { body, signal, tell });
      begun(upload);
      let left = upload.missing.reduce((sum, one) => sum + one.size - one.offset, 0);
      tell({ done: total - left, total });
      for (const one of upload.missing) {
        const path = `/api/uploads/${upload.id}/blobs/${one.sha256}`;
        await bringBlob(path, blobs.get(one.sha256), one.offset, signal, tell, (more) => {
          left -= more;
          tell({ done: total - left, total });
        });
      }
      return await conclude(upload.id);
    } catch (error) {
      const isForgotten = error.status === 404 || error.status === 409;
      if (!isForgotten || round >= ROUNDS) throw error;
    }
  }
}

async function bringBlob(path, file, from, signal, tell, moved) {
  let offset = from, spoilt = 0, tries = 0;
  do {
    const piece = await read(file.slice(offset, offset + PIECE));
    const headers = { "upload-offset": String(offset), "content-type": "application/offset+octet-stream" };
    const answer = await once("PATCH", path, { body: piece, headers, signal });
    if (answer === null || AGAIN.has(answer.status)) {
      await pause(tries++, answer, signal, tell);
      const head = await patiently("HEAD", path, { signal, tell });
      if (!head.ok) throw await refusal(head);
      offset = moveTo(head, offset, moved);
      continue;
    }
    if (answer.status === 422 && spoilt++ < 2) {
      moved(-offset);
      offset = 0;
      continue;
    }
    if (!answer.ok && answer.status !== 409) throw await refusal(answer);
    const before = offset;
    offset = moveTo(answer, offset, moved);
    tries = offset > before ? 0 : tries;
    if (answer.status === 409 && offset === before) await pause(tries++, answer, signal, tell);
  } while (offset < file.size);
}

function moveTo(answer, offset, moved) {
  const told = Number(answer.headers.get("upload-offset") ?? offset);
  moved(told - offset);
  return told;
}

// An answer's JSON; asked again while nobody answers. `Refused` for a no.
export async function ask(method, path, { body, signal, tell }) {
  const headers = { "content-type": "application/json" };
  const answer = await patiently(method, path, { body: body && JSON.stringify(body), headers, signal, tell });
  if (!answer.ok) throw await refusal(answer);
  return answer.status === 204 ? null : answer.json();
}

async function patiently(method, path, { body, headers, signal, tell }) {
  for (let tries = 0; ; tries += 1) {
    const answer = await once(method, path, { body, headers, signal });
    if (answer !== null && !AGAIN.has(answer.status)) return answer;
    await pause(tries, answer, signal, tell);
  }
}

// One request; null when nobody answers.
async function once(method, path, { body, headers, signal }) {
  try {
    const either = AbortSignal.any([signal, AbortSignal.timeout(STALLED)]);
    return await fetch(path, { method, body, headers, signal: either });
  } catch (error) {
    if (signal.aborted) throw error;
    return null;
  }
}

async function pause(tries, answer, signal, tell) {
  const length = Math.min(500 * 2 ** tries, LONGEST) * (0.75 + Math.random() / 2);
  tell({ waiting: length / 1000, why: answer ? `status ${answer.status}` : "no response" });
  await new Promise((done, fail) => {
    const timer = setTimeout(done, length);
    addEventListener("online", () => { clearTimeout(timer); done(); }, { once: true });
    signal.addEventListener("abort", () => { clearTimeout(timer); fail(signal.reason); }, { once: true });
  });
  tell({ waiting: 0 });
}

async function refusal(answer) {
  try {
    const said = await answer.json();
    return new Refused(answer.status, said.what, said.why, said.try_this);
  } catch {
    return new Refused(answer.status, `The gateway responded with status ${answer.status}`);
  }
}
