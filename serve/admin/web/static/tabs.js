// Tabs: one of several panels. Arrow keys move between them; `tabs:chosen` tells who listens.

function choose(tab) {
  const list = tab.closest("[role=tablist]");
  for (const one of list.querySelectorAll("[role=tab]")) {
    const isChosen = one === tab;
    one.setAttribute("aria-selected", isChosen);
    one.tabIndex = isChosen ? 0 : -1;
    document.getElementById(one.getAttribute("aria-controls")).hidden = !isChosen;
  }
  tab.dispatchEvent(new CustomEvent("tabs:chosen", { bubbles: true }));
}

document.addEventListener("click", (event) => {
  const tab = event.target.closest?.("[role=tab]");
  if (tab) choose(tab);
});

document.addEventListener("keydown", (event) => {
  const tab = event.target.closest?.("[role=tab]");
  if (!tab || event.ctrlKey || event.metaKey || event.altKey) return;
  const tabs = [...tab.closest("[role=tablist]").querySelectorAll("[role=tab]")];
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const next = event.key === "Home" ? tabs[0] : event.key === "End" ? tabs.at(-1)
    : step && tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
  if (!next) return;
  event.preventDefault();
  choose(next);
  next.focus();
});
