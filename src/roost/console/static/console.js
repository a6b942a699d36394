"use strict";
// While somebody looks, the parts marked data-live are read anew every two seconds; without scripts, a link does.

const pause = 2000;
const status = document.getElementById("live");

async function refresh() {
  const live = [...document.querySelectorAll("[data-live]")];
  if (document.hidden || live.length === 0) return;
  const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
  if (!answer.ok) throw new Error(answer.statusText);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of live) {
    const next = page.getElementById(part.id);
    const inUse = part !== document.activeElement && part.contains(document.activeElement);
    if (next && !inUse && !part.matches(":hover:active")) part.replaceChildren(...next.childNodes);
  }
  status.textContent = "live";
}

async function watch() {
  try {
    await refresh();
  } catch {
    status.textContent = "not live";
  }
  setTimeout(watch, pause);
}

for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) break;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
    button.textContent = "Copied";
  });
}
setTimeout(watch, pause);
