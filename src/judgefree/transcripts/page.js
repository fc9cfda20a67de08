"use strict";
// Hides what the filters leave out. Nothing of a run's text is ever read here but the attributes compared below.
const form = document.querySelector("#filters");
const groups = [...document.querySelectorAll("article[data-step]")];
const parts = [...document.querySelectorAll("[data-role]")];

function apply() {
  const chosen = Object.fromEntries(new FormData(form));
  let shown = 0;
  for (const group of groups) {
    const fits = ["step", "outcome"].every((name) => chosen[name] === "" || group.dataset[name] === chosen[name]);
    group.hidden = !fits;
    shown += fits;
  }
  for (const part of parts) part.hidden = chosen.role !== "" && part.dataset.role !== chosen.role;
  document.querySelector("#shown").textContent = `${shown} of ${groups.length}`;
  document.querySelector("#nothing").hidden = shown > 0;
}

form.hidden = false;
form.addEventListener("change", apply);
form.addEventListener("reset", () => setTimeout(apply));
form.addEventListener("submit", (event) => event.preventDefault());
apply();
