// The gallery: j and k move from row to row. Enter follows the link, as everywhere.

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.("input, select, textarea, dialog")) return;
  const step = { j: 1, k: -1 }[event.key];
  const rows = [...document.querySelectorAll("[data-gallery] [data-row]")];
  if (!step || !rows.length) return;
  event.preventDefault();
  const here = rows.indexOf(document.activeElement);
  const next = here < 0 ? (step > 0 ? 0 : rows.length - 1) : here + step;
  rows[Math.min(Math.max(next, 0), rows.length - 1)].focus();
});
