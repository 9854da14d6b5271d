// What every page needs: messages that close, texts that are copied, forms that run by Ctrl+Enter.

document.addEventListener("click", (event) => {
  const close = event.target.closest("[data-close]");
  if (close) close.parentElement.remove();
  const copy = event.target.closest("[data-copy]");
  if (copy) copyText(copy);
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    const form = event.target.closest?.("form") ?? document.querySelector("form[data-run]");
    if (form) {
      event.preventDefault();
      form.requestSubmit();
    }
  }
});

// A problem belongs to what was asked last: the next request takes it away.
document.addEventListener("htmx:beforeRequest", () => {
  document.getElementById("problem").replaceChildren();
});

document.addEventListener("htmx:sendError", () => {
  tell("The gateway does not respond", "Check that it is running, and try again.");
});

async function copyText(button) {
  const text = document.getElementById(button.dataset.copy)?.textContent ?? button.dataset.text ?? "";
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Copy failed";
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}

function tell(what, why = "") {
  const box = document.createElement("div");
  box.className = "verdict bad";
  const strong = document.createElement("strong");
  strong.textContent = what;
  const more = document.createElement("p");
  more.textContent = why;
  box.append(strong, more);
  document.getElementById("problem").replaceChildren(box);
}
