// What can be seen to be wrong with a page, as lists of sentences; an empty list is right.
// One expression: Python evaluates `(…).name()` in the page, which no policy of the page forbids.
(() => {
  const INTERACTIVE = "a[href], button, input, select, textarea, summary, iframe, [tabindex]";
  const SLACK = 1; // CSS pixels: browsers round

  const all = (selector) => [...document.querySelectorAll(selector)];
  const isSeen = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
  const scrolls = (value) => value === "auto" || value === "scroll";
  const clips = (value) => value === "hidden" || value === "clip";

  function name(element) {
    const text = (element.getAttribute?.("aria-label") || element.textContent || element.value || "").trim();
    const mark = element.id ? `#${element.id}` : element.classList?.length ? `.${[...element.classList].join(".")}` : "";
    return `<${element.tagName.toLowerCase()}${mark}> "${text.replace(/\s+/g, " ").slice(0, 60)}"`;
  }

  // Parts of the page that are there for screen readers only are small and clipped by intent.
  const isForReaders = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const box = one.getBoundingClientRect();
      if ((box.width <= 2 && box.height <= 2) || getComputedStyle(one).clipPath === "inset(50%)") return true;
    }
    return false;
  };

  function overflow() {
    const page = document.documentElement;
    if (page.scrollWidth <= page.clientWidth) return [];
    const wide = all("body *").filter((one) => isSeen(one) && one.getBoundingClientRect().right > page.clientWidth + SLACK);
    const deepest = wide.filter((one) => !wide.some((other) => other !== one && one.contains(other)));
    const names = deepest.slice(0, 5).map(name).join("; ");
    return [`the document is ${page.scrollWidth} px wide in ${page.clientWidth} px: ${names}`];
  }

  // Every line of text is inside of every box that clips it, and of the block that it stands in.
  function cut() {
    const found = new Map();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const parent = node.parentElement;
      if (!node.data.trim() || !parent || !isSeen(parent) || isForReaders(parent)) continue;
      if (parent.closest("option, script, style, noscript, title, .skip, dialog:not([open])")) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      const lines = [...range.getClientRects()].filter((line) => line.width > 0 && line.height > 0);
      const fault = lines.length ? cutBy(parent, lines) : "";
      if (fault) found.set(parent, `${name(parent)} ${fault}`);
    }
    return [...found.values()];
  }

  function cutBy(parent, lines) {
    let isOwnBlock = true;
    for (let box = parent; box && box !== document.documentElement; box = box.parentElement) {
      const style = getComputedStyle(box);
      if (style.display === "inline" || style.display === "contents") continue;
      if (scrolls(style.overflowX) && scrolls(style.overflowY)) return "";
      const edge = box.getBoundingClientRect();
      const isWide = lines.some((line) => line.right > edge.right + SLACK || line.left < edge.left - SLACK);
      const isTall = lines.some((line) => line.bottom > edge.bottom + 3 || line.top < edge.top - 3);
      if (isWide && clips(style.overflowX)) return `is cut at the side by ${name(box).split(" ")[0]}`;
      if (isTall && clips(style.overflowY)) return `is cut below by ${name(box).split(" ")[0]}`;
      if (isWide && isOwnBlock && !scrolls(style.overflowX)) return "is wider than the block that it stands in";
      if (box instanceof SVGElement && box.tagName !== "svg") continue;
      isOwnBlock = false;
      if (scrolls(style.overflowX) || scrolls(style.overflowY) || style.position === "fixed") return "";
    }
    return "";
  }

  const interactive = () => all(INTERACTIVE).filter((one) =>
    isSeen(one) && !one.disabled && one.tabIndex >= 0 && !isForReaders(one) && !one.matches(".skip, main, [inert] *"));

  // The part of an element that can be seen inside of what scrolls around it.
  function seenBoxes(element) {
    let boxes = [...element.getClientRects()].map(({ left, top, right, bottom }) => ({ left, top, right, bottom }));
    for (let around = element.parentElement; around && around !== document.body; around = around.parentElement) {
      const style = getComputedStyle(around);
      if (style.overflowX === "visible" && style.overflowY === "visible") continue;
      const edge = around.getBoundingClientRect();
      boxes = boxes.map((box) => ({
        left: Math.max(box.left, edge.left), right: Math.min(box.right, edge.right),
        top: Math.max(box.top, edge.top), bottom: Math.min(box.bottom, edge.bottom),
      })).filter((box) => box.right > box.left && box.bottom > box.top);
    }
    return boxes;
  }

  const shared = (a, b) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > SLACK && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > SLACK;

  function overlapping() {
    const found = [];
    const placed = interactive().filter((one) => !one.matches("[role=region], .table, pre")).map((one) => [one, seenBoxes(one)]);
    placed.forEach(([one, boxes], at) => {
      for (const [other, others] of placed.slice(at + 1)) {
        if (one.contains(other) || other.contains(one)) continue;
        if (one.closest("dialog") !== other.closest("dialog")) continue; // a dialog covers its page
        if (boxes.some((a) => others.some((b) => shared(a, b)))) found.push(`${name(one)} overlaps ${name(other)}`);
      }
    });
    return found;
  }

  // What Tab must reach, in this order. Of radio buttons with one name, the chosen or the first; a
  // frame only if there is something to do in it.
  function stops() {
    const radios = new Set();
    return interactive().concat(all(".skip")).sort((a, b) => (a.compareDocumentPosition(b) & 4 ? -1 : 1)).filter((one) => {
      if (one.tagName === "IFRAME") return false;
      if (one.type !== "radio") return true;
      const group = all("input[type=radio]").filter((other) => other.name === one.name && other.form === one.form && isSeen(other));
      const chosen = group.find((other) => other.checked) ?? group[0];
      if (one !== chosen || radios.has(chosen)) return false;
      radios.add(chosen);
      return true;
    });
  }

  // Where the focus is now: its place among `stops`, and what is wrong with how it is shown.
  function focused() {
    const element = document.activeElement;
    if (!element || element === document.body || element === document.documentElement) return null;
    const style = getComputedStyle(element);
    const shows = (one) => {
      const its = getComputedStyle(one);
      return (its.outlineStyle !== "none" && parseFloat(its.outlineWidth) >= 1) || its.boxShadow !== "none";
    };
    const label = element.labels?.[0];
    const box = element.getBoundingClientRect();
    const isOnScreen = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
    const faults = [];
    const isFrame = element.tagName === "IFRAME"; // the focus is shown inside of it
    if (!isFrame && !shows(element) && !(label && shows(label))) faults.push(`${name(element)} does not show its focus`);
    if (!isOnScreen) faults.push(`${name(element)} is not on the screen when it has the focus`);
    return {
      at: stops().indexOf(element), name: name(element), faults,
      mayComeTwice: isFrame || scrolls(style.overflowX) || scrolls(style.overflowY) || ["date", "time", "datetime-local"].includes(element.type),
    };
  }

  // Whether the focus is within what is open as a dialog.
  const isInDialog = () => Boolean(document.activeElement?.closest("dialog[open]"));

  return { isInDialog, overflow, cut, overlapping, focused, stops: () => stops().map(name), nodes: () => all("*").length };
})()
