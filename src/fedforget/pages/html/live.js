// Keeps a live page up to date: fetches the page every second or so, and replaces what changed.
"use strict";
(() => {
  const EVERY = 1000, HIDDEN = 10000, PATIENCE = 15000;
  const one = (id) => document.getElementById(id);
  const page = one("page"), state = one("state"), seen = one("seen"), problem = one("problem");
  const enter = one("enter"), field = one("token");
  const trusted = window.trustedTypes
    ? window.trustedTypes.createPolicy("fedforget", { createHTML: (text) => text })
    : { createHTML: (text) => text };
  const sources = new Map();
  let version = null, ahead = 0, timer = null, title = "";

  // A token comes after the # of the address, which no server sees, and stays with this tab.
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname);
  }

  const tell = (kind, text) => {
    state.className = `bar-of-state ${kind}`;
    if (problem.textContent !== text) problem.textContent = text;
  };

  const scrolled = (element) =>
    [...element.querySelectorAll(".scroll")].map((table) => table.scrollLeft);

  // What the reader has opened and how far tables are scrolled stays as it is.
  const replaced = (old, fresh) => {
    for (const fold of old.querySelectorAll("details[open]")) {
      const again = fold.id && fresh.querySelector(`#${fold.id}`);
      if (again) again.open = true;
    }
    const offsets = scrolled(old);
    old.replaceWith(fresh);
    [...fresh.querySelectorAll(".scroll")].forEach((table, at) => {
      if (offsets[at]) table.scrollLeft = offsets[at];
    });
  };

  const show = (text) => {
    const holder = document.createElement("template");
    holder.innerHTML = trusted.createHTML(text);
    const parts = [...holder.content.querySelector("main").children];
    const ids = parts.map((part) => part.id);
    const html = new Map(parts.map((part) => [part.id, part.outerHTML]));
    [...page.children].filter((old) => !ids.includes(old.id)).forEach((old) => old.remove());
    parts.forEach((part, at) => {
      const old = page.children[at];
      if (!old || old.id !== part.id) page.insertBefore(part, old || null);
      else if (sources.get(part.id) !== html.get(part.id)) replaced(old, part);
    });
    sources.clear();
    html.forEach((source, id) => sources.set(id, source));
    const name = page.querySelector("h1");
    title = name ? name.textContent : "";
  };

  const tick = () => {
    for (const element of document.querySelectorAll("[data-since]")) {
      const seconds = (Date.now() + ahead) / 1000 - Number(element.dataset.since);
      element.textContent = `${Math.max(0, Math.round(seconds))} s`;
    }
    const running = page.querySelector("[aria-current=step]");
    document.title = title ? `${running ? "● " : ""}${title} – fedforget` : "fedforget";
  };

  const look = async () => {
    const headers = {}, token = sessionStorage.getItem("token");
    if (token) headers["Authorization"] = `Bearer ${token}`;
    if (version) headers["If-None-Match"] = version;
    try {
      const answer = await fetch("content", {
        headers, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(PATIENCE),
      });
      const date = Date.parse(answer.headers.get("Date") || "");
      if (date && Math.abs(date - Date.now()) > 2000) ahead = date - Date.now();
      if (answer.headers.get("X-Token") === "needed") {
        sessionStorage.removeItem("token");
        enter.hidden = false;
        tell("lost", token ? "This token is not the one of this page." : "A token is needed.");
        seen.textContent = "";
        return false;
      }
      if (answer.status === 200) {
        show(await answer.text());
        version = answer.headers.get("ETag");
      }
      if (answer.headers.get("X-Problem")) {
        tell("lost", decodeURIComponent(answer.headers.get("X-Problem")));
      } else {
        seen.textContent = `live, as of ${new Date(Date.now() + ahead).toISOString().slice(11, 19)} UTC`;
        tell("fresh", "");
      }
    } catch (error) {
      tell("lost", "The page cannot be reached; trying again. What is below may be old.");
    }
    return true;
  };

  const again = async () => {
    clearTimeout(timer);
    if (await look()) timer = setTimeout(again, document.hidden ? HIDDEN : EVERY);
    tick();
  };

  enter.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", field.value.trim());
    field.value = "";
    enter.hidden = true;
    again();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && enter.hidden) again();
  });
  setInterval(tick, 1000);
  again();
})();
