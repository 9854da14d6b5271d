// An evaluation under way: its events move the bar; its report is fetched anew now and at the end.

const BETWEEN = 4000; // milliseconds between two reports while it runs
const POLL = 2000; // where events do not get through

function begin(place) {
  const part = (name) => place.querySelector(`[data-${name}]`);
  const bar = place.querySelector("progress");
  let last = Date.now();

  function show(one) {
    if (!place.isConnected) return finish();
    bar.max = one.total;
    bar.value = one.done;
    part("state").textContent = one.state;
    const failed = one.failed ? `, ${one.failed.toLocaleString("en")} failed` : "";
    part("told").textContent =
      `${one.done.toLocaleString("en")} of ${one.total.toLocaleString("en")} rows${failed}`;
    const isOver = !["queued", "running"].includes(one.state);
    if (isOver) finish();
    if (isOver || Date.now() - last > BETWEEN) {
      last = Date.now();
      window.htmx.ajax("GET", place.dataset.report, { target: "#report", swap: "innerHTML" });
    }
    return isOver;
  }

  const events = new EventSource(`${place.dataset.follow}/events`);
  events.addEventListener("progress", (event) => show(JSON.parse(event.data)));
  events.addEventListener("error", () => {
    if (events.readyState === EventSource.CLOSED) poll();
  });

  async function poll() {
    while (place.isConnected) {
      const answer = await fetch(place.dataset.follow).catch(() => null);
      if (answer?.ok && show(await answer.json())) return;
      await new Promise((later) => { setTimeout(later, POLL); });
    }
  }

  function finish() {
    events.close();
  }
}

function beginAll() {
  for (const place of document.querySelectorAll("[data-follow]:not([data-begun])")) {
    place.dataset.begun = "";
    begin(place);
  }
}

document.addEventListener("htmx:afterSwap", beginAll);
beginAll();
