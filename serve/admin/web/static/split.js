// The split's form: a slider and a number for each version, and what the shares come to.

const form = document.querySelector("[data-split]");
const rows = [...form?.querySelectorAll("[data-share]") ?? []].map((row) => ({
  slide: row.querySelector("[data-slide]"),
  number: row.querySelector("input[type=number]"),
  told: row.querySelector("output"),
}));

function tell() {
  const total = rows.reduce((sum, row) => sum + weight(row), 0);
  for (const row of rows) {
    row.told.textContent = total ? `${(100 * weight(row) / total).toFixed(1)} %` : "—";
  }
  rows[0]?.number.setCustomValidity(total ? "" : "Set a weight above 0 for at least one version");
}

function weight(row) {
  return Math.max(0, Math.floor(Number(row.number.value) || 0));
}

for (const row of rows) {
  row.slide.addEventListener("input", () => {
    row.number.value = row.slide.value;
    tell();
  });
  row.number.addEventListener("input", () => {
    row.slide.value = row.number.value;
    tell();
  });
}
tell();
