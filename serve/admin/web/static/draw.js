// Drawing an input: white on black, by mouse, pen, finger or keyboard. The field holds a PNG of it.

const MOST_UNDONE = 30;

function begin(place) {
  const canvas = place.querySelector("canvas");
  const ink = canvas.getContext("2d", { willReadFrequently: true });
  const part = (name) => place.querySelector(`[data-${name}]`);
  const [thickness, invert, field, cursor, said] =
    ["thickness", "invert", "drawn", "cursor", "said"].map(part);
  const before = [];
  let at = { x: canvas.width / 2, y: canvas.height / 2 };
  let pen = null;

  const size = () => Number(thickness.value);
  const paper = () => (invert.checked ? "#fff" : "#000");

  function clear() {
    ink.fillStyle = paper();
    ink.fillRect(0, 0, canvas.width, canvas.height);
    field.value = ""; // nothing is drawn
  }

  function keep() {
    before.push([ink.getImageData(0, 0, canvas.width, canvas.height), field.value]);
    if (before.length > MOST_UNDONE) before.shift();
  }

  function line(from, to) {
    ink.strokeStyle = invert.checked ? "#000" : "#fff";
    ink.lineCap = ink.lineJoin = "round";
    ink.lineWidth = size();
    ink.beginPath();
    ink.moveTo(from.x, from.y);
    ink.lineTo(to.x + 0.01, to.y); // a line without a length is a dot
    ink.stroke();
  }

  function done() {
    field.value = canvas.toDataURL("image/png");
  }

  function point(event) {
    const box = canvas.getBoundingClientRect();
    return {
      x: (event.clientX - box.left) * (canvas.width / box.width),
      y: (event.clientY - box.top) * (canvas.height / box.height),
    };
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 0) return;
    event.preventDefault();
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    cursor.hidden = true;
    keep();
    pen = point(event);
    line(pen, pen);
  });

  canvas.addEventListener("pointermove", (event) => {
    if (!pen) return;
    for (const each of event.getCoalescedEvents?.() ?? [event]) {
      const next = point(each);
      line(pen, next);
      pen = next;
    }
  });

  const lift = () => {
    if (pen) done();
    pen = null;
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);

  function show() {
    const scale = canvas.clientWidth / canvas.width;
    cursor.hidden = false;
    cursor.style.left = `${canvas.offsetLeft + canvas.clientLeft + at.x * scale}px`;
    cursor.style.top = `${canvas.offsetTop + canvas.clientTop + at.y * scale}px`;
    cursor.style.width = cursor.style.height = `${Math.max(size() * scale, 6)}px`;
  }

  canvas.addEventListener("focus", () => { if (canvas.matches(":focus-visible")) show(); });
  canvas.addEventListener("blur", () => { cursor.hidden = true; });

  canvas.addEventListener("keydown", (event) => {
    const step = canvas.width / 32;
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const move = moves[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || !(move || event.key === " ")) return;
    event.preventDefault();
    const from = at;
    if (move) {
      at = {
        x: Math.min(Math.max(at.x + move[0] * step, 0), canvas.width),
        y: Math.min(Math.max(at.y + move[1] * step, 0), canvas.height),
      };
    }
    if (!move || event.shiftKey) {
      keep();
      line(from, at);
      done();
    }
    show();
    const part = (value, all) => Math.round((100 * value) / all);
    said.textContent = `${part(at.x, canvas.width)} % from the left, ${part(at.y, canvas.height)} % from the top`;
  });

  part("clear").addEventListener("click", () => { keep(); clear(); });
  part("undo").addEventListener("click", () => {
    const last = before.pop();
    if (!last) return;
    ink.putImageData(last[0], 0, 0);
    field.value = last[1];
  });
  invert.addEventListener("change", () => {
    const pixels = ink.getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < pixels.data.length; i += 4) {
      for (let c = 0; c < 3; c += 1) pixels.data[i + c] = 255 - pixels.data[i + c];
    }
    ink.putImageData(pixels, 0, 0);
    before.length = 0;
    if (field.value) done();
  });

  clear();
}

function beginAll() {
  for (const place of document.querySelectorAll("[data-draw]:not([data-begun])")) {
    place.dataset.begun = "";
    begin(place);
  }
}

document.addEventListener("htmx:afterSwap", beginAll);
beginAll();
