// The reference's filter: lines that hold every word stay.

const box = document.querySelector("[data-filter]");
const field = box.querySelector("input");
const told = box.querySelector("[role=status]");
box.hidden = false;

field.addEventListener("input", () => {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const group of document.querySelectorAll("[data-group]")) {
    let here = 0;
    for (const line of group.querySelectorAll("[data-find]")) {
      const text = line.dataset.find.toLowerCase();
      line.hidden = !words.every((word) => text.includes(word));
      here += !line.hidden;
    }
    group.hidden = !here;
    found += here;
  }
  told.textContent = words.length ? `${found} found` : "";
});
