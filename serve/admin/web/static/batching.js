// Advice that can be taken: its button types what it says into the form, and nothing else there.

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("[data-fill]");
  const form = document.getElementById("change-form");
  if (!link || !form) return;
  event.preventDefault();
  const fields = Object.entries(JSON.parse(link.dataset.fill));
  for (const [name, value] of fields) type(form.elements[name], value);
  form.elements[fields[0]?.[0]]?.focus();
});

function type(field, value) {
  if (field?.type === "checkbox") field.checked = value !== "";
  else if (field) field.value = value;
}
