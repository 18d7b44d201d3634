// Before the page is drawn: its ground is as dark as the chosen theme, without a white flash.
{
  const theme = localStorage.getItem("ea-theme");
  const system = matchMedia("(prefers-color-scheme: dark)").matches;
  const dark = theme === "dark" || (theme !== "light" && system);
  document.documentElement.style.background = dark ? "#141412" : "#f7f5f1";
  document.documentElement.style.colorScheme = dark ? "dark" : "light";
}
