// What becomes of an upload: looked at again and again, until it serves or has come to nothing.

import { ask, Refused } from "./uploading.js";

const PAUSE = 800; // milliseconds
const LOOKS = 4; // in a row that say failed or not wanted: a load may be tried again

// Until the version is ready; gives it. `tell` gets {state, why} whenever that changes.
export async function untilReady(model, version, { signal, tell }) {
  const path = `/api/models/${encodeURIComponent(model)}/versions/${version}`;
  let told = "", stuck = 0;
  for (;;) {
    const one = await ask("GET", path, { signal, tell });
    const said = `${one.state} ${one.reason}`;
    if (said !== told) tell({ state: one.state, why: one.reason });
    told = said;
    const waits = one.labels.length || one.live;
    if (["ready", "serving"].includes(one.state) && !waits) return one;
    if (["failed", "retired", "removed"].includes(one.recorded)) return one;
    stuck = ["failed", "not wanted"].includes(one.state) ? stuck + 1 : 0;
    if (stuck >= LOOKS) return one;
    await sleep(PAUSE, signal);
  }
}

// Until a conversion has become a version; gives that version's number.
export async function untilConverted(id, { signal, tell }) {
  const path = `/api/conversions/${id}`;
  let after = 0;
  for (;;) {
    const news = await ask("GET", `${path}/events?after=${after}&wait=20`, { signal, tell });
    after = news?.after ?? after;
    if (news) tell({ state: news.state, why: news.stage });
    const job = await ask("GET", path, { signal, tell });
    if (job.version !== null) return job.version;
    if (job.fault) throw new Refused(422, job.fault.what, job.fault.why, job.fault.try_this);
    if (job.state === "cancelled") throw new Refused(409, "The conversion was cancelled");
  }
}

function sleep(length, signal) {
  return new Promise((done, fail) => {
    const timer = setTimeout(done, length);
    signal.addEventListener("abort", () => { clearTimeout(timer); fail(signal.reason); }, { once: true });
  });
}
