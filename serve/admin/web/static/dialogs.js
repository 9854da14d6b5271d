// Buttons that open a dialog, and those within that close it. Escape closes it, too, by itself.

document.addEventListener("click", (event) => {
  const opens = event.target.closest?.("[data-opens]");
  if (opens) document.getElementById(opens.dataset.opens)?.showModal();
  if (event.target.closest?.("[data-cancel]")) event.target.closest("dialog")?.close();
  if (event.target.matches?.("dialog")) event.target.close(); // beside it
});

// A problem is told below the dialog, which would hide it.
document.addEventListener("htmx:responseError", (event) => {
  event.target.closest?.("dialog")?.close();
});
